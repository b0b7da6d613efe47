// Every request field of the OpenAI API and of vLLM's extensions (interfaces.md, 3): what it asks
// for reaches the engine or is seen in the answer, or a 400 names it.
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>

#include "server/router.h"
#include "server/service_fixture.h"
#include "support/source.h"

namespace zipage::testing_server {
namespace {

struct Seen {
  const Request* request;  // the last one submitted; null: none
  Answer answer;
  json::value body;  // of a plain answer
  const ByteTokenizer* tokenizer;
  std::string log;
  std::string prompt() const { return tokenizer->decode(request->prompt_token_ids, false); }
  const SamplingParams& sampling() const { return request->sampling; }
  const json::value& choice() const { return body.at("choices").at(0); }
};
using Check = std::function<bool(const Seen&)>;

struct Row {
  const char* field;
  const char* members;  // what the body has besides messages or prompt
  Check honoured;       // empty: refused
};

// The fields as the page lists them.
constexpr const char* kChatFields =
    "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens "
    "max_completion_tokens n presence_penalty response_format seed stop stream stream_options "
    "temperature top_p tools tool_choice parallel_tool_calls reasoning_effort user top_k min_p "
    "repetition_penalty length_penalty use_beam_search stop_token_ids include_stop_str_in_output "
    "ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens "
    "truncate_prompt_tokens prompt_logprobs allowed_token_ids bad_words echo add_generation_prompt "
    "continue_final_message add_special_tokens documents chat_template chat_template_kwargs "
    "structured_outputs priority request_id cache_salt return_token_ids "
    "return_tokens_as_token_ids thinking_token_budget include_reasoning kv_budget kv_policy";
constexpr const char* kCompletionFields =
    "model prompt echo suffix logprobs best_of max_tokens n stop stream stream_options temperature "
    "top_p frequency_penalty presence_penalty logit_bias seed user top_k min_p repetition_penalty "
    "length_penalty use_beam_search stop_token_ids include_stop_str_in_output ignore_eos "
    "min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens "
    "prompt_logprobs allowed_token_ids bad_words add_special_tokens response_format "
    "structured_outputs priority request_id cache_salt return_token_ids "
    "return_tokens_as_token_ids thinking_token_budget kv_budget kv_policy";

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The rows that both endpoints have.
std::vector<Row> shared_rows() {
  return {
      {"model", R"("model":"second")", [](auto& s) { return s.body.at("model") == "second"; }},
      {"model", R"("model":"nobody")", {}},
      {"frequency_penalty", R"("frequency_penalty":0.5)",
       [](auto& s) { return s.sampling().frequency_penalty == 0.5; }},
      {"presence_penalty", R"("presence_penalty":0.5)",
       [](auto& s) { return s.sampling().presence_penalty == 0.5; }},
      {"repetition_penalty", R"("repetition_penalty":1.5)",
       [](auto& s) { return s.sampling().repetition_penalty == 1.5; }},
      {"logit_bias", R"("logit_bias":{"7":3})",
       [](auto& s) { return s.sampling().logit_bias.at(7) == 3; }},
      {"max_tokens", R"("max_tokens":3)", [](auto& s) { return s.sampling().max_tokens == 3; }},
      {"n", R"("n":2)", [](auto& s) { return s.body.at("choices").as_array().size() == 2; }},
      {"response_format", R"("response_format":{"type":"json_schema","json_schema":{}})", {}},
      {"response_format", R"("response_format":{"type":"json_object"})", {}},
      {"response_format", R"("response_format":{"type":"structural_tag"})", {}},
      {"response_format", R"("response_format":{"type":"text"})", [](auto&) { return true; }},
      {"seed", R"("seed":5)", [](auto& s) { return s.sampling().seed == 5u; }},
      {"stop", R"("stop":"x")",
       [](auto& s) { return s.sampling().stop == std::vector<std::string>{"x"}; }},
      {"stop", R"("stop":["x","y"])", [](auto& s) { return s.sampling().stop.size() == 2; }},
      {"stream", R"("stream":true)",
       [](auto& s) { return has(s.answer.head, "text/event-stream"); }},
      {"stream_options", R"("stream":true,"stream_options":{"include_usage":true})",
       [](auto& s) { return has(s.answer.body, R"("choices":[],"usage":{)"); }},
      {"stream_options", R"("stream":true,"stream_options":{"continuous_usage_stats":true})",
       [](auto& s) { return has(s.answer.body, R"("usage":{)"); }},
      {"stream_options", R"("stream_options":{"include_usage":true})", {}},
      {"temperature", R"("temperature":0.5)",
       [](auto& s) { return s.sampling().temperature == 0.5; }},
      {"top_p", R"("top_p":0.5)", [](auto& s) { return s.sampling().top_p == 0.5; }},
      {"top_k", R"("top_k":5)", [](auto& s) { return s.sampling().top_k == 5; }},
      {"min_p", R"("min_p":0.5)", [](auto& s) { return s.sampling().min_p == 0.5; }},
      {"user", R"("user":"somebody")", [](auto& s) { return has(s.log, "user \"somebody\""); }},
      {"length_penalty", R"("length_penalty":2)", {}},
      {"use_beam_search", R"("use_beam_search":true)", {}},
      {"stop_token_ids", R"("stop_token_ids":[9])",
       [](auto& s) { return s.sampling().stop_token_ids == std::vector<int32_t>{9}; }},
      {"include_stop_str_in_output", R"("include_stop_str_in_output":true)",
       [](auto& s) { return s.sampling().include_stop_str_in_output; }},
      {"ignore_eos", R"("ignore_eos":true)", [](auto& s) { return s.sampling().ignore_eos; }},
      {"min_tokens", R"("min_tokens":2)", [](auto& s) { return s.sampling().min_tokens == 2; }},
      {"skip_special_tokens", R"("skip_special_tokens":false)",
       [](auto& s) { return !s.sampling().skip_special_tokens; }},
      {"spaces_between_special_tokens", R"("spaces_between_special_tokens":false)", {}},
      {"truncate_prompt_tokens", R"("truncate_prompt_tokens":1)",
       [](auto& s) { return s.request->prompt_token_ids.size() == 1; }},
      {"allowed_token_ids", R"("allowed_token_ids":[9])",
       [](auto& s) { return s.sampling().allowed_token_ids == std::vector<int32_t>{9}; }},
      {"bad_words", R"("bad_words":["x"])",
       [](auto& s) { return s.sampling().bad_words == std::vector<std::string>{"x"}; }},
      {"structured_outputs", R"("structured_outputs":{"regex":"a"})", {}},
      {"priority", R"("priority":7)", [](auto& s) { return s.request->priority == 7; }},
      {"request_id", R"("request_id":"mine")",
       [](auto& s) { return has(std::string(s.body.at("id").as_string()), "-mine"); }},
      {"cache_salt", R"("cache_salt":"salt")",
       [](auto& s) { return s.request->cache_salt == "salt"; }},
      {"thinking_token_budget", R"("thinking_token_budget":5)", {}},
      {"kv_budget", R"("kv_budget":64)", [](auto& s) { return s.sampling().kv_budget == 64; }},
      {"kv_budget", R"("kv_budget":"full")",
       [](auto& s) { return s.sampling().kv_budget == kFullKv; }},
      {"kv_policy", R"("kv_policy":"paper")",
       [](auto& s) { return s.sampling().kv_policy == KvPolicy::kPaper; }},
  };
}

std::vector<Row> chat_rows() {
  std::vector<Row> rows = shared_rows();
  const std::vector<Row> own{
      {"messages", "", [](auto& s) { return has(s.prompt(), "\"content\":\"hi\""); }},
      {"logprobs", R"("logprobs":true)",
       [](auto& s) { return s.choice().at("logprobs").at("content").as_array().size() == 18; }},
      {"top_logprobs", R"("logprobs":true,"top_logprobs":2)",
       [](auto& s) {
         return s.choice()
                    .at("logprobs")
                    .at("content")
                    .at(0)
                    .at("top_logprobs")
                    .as_array()
                    .size() == 2;
       }},
      {"max_completion_tokens", R"("max_completion_tokens":3,"max_tokens":4)",
       [](auto& s) { return s.sampling().max_tokens == 3; }},
      {"tools", R"("tools":[{"type":"function"}])", {}},
      {"tool_choice", R"("tool_choice":"required")", {}},
      {"tool_choice", R"("tool_choice":{"type":"function","function":{"name":"f"}})", {}},
      {"tool_choice", R"("tool_choice":"none","tools":[])", [](auto&) { return true; }},
      {"parallel_tool_calls", R"("parallel_tool_calls":false)", [](auto&) { return true; }},
      {"parallel_tool_calls", R"("parallel_tool_calls":"yes")", {}},
      {"reasoning_effort", R"("reasoning_effort":"low")",
       [](auto& s) { return has(s.prompt(), R"("reasoning_effort":"low")"); }},
      {"prompt_logprobs", R"("prompt_logprobs":1)",
       [](auto& s) {
         return s.body.at("prompt_logprobs").as_array().size() ==
                s.request->prompt_token_ids.size();
       }},
      {"prompt_logprobs", R"("prompt_logprobs":1,"stream":true)", {}},
      {"echo", R"("echo":true)", {}},
      {"add_generation_prompt", R"("add_generation_prompt":false)",
       [](auto& s) { return !has(s.prompt(), "assistant:"); }},
      {"continue_final_message", R"("continue_final_message":true)",
       [](auto& s) { return has(s.prompt(), "(continued)") && !has(s.prompt(), "assistant:"); }},
      {"continue_final_message",
       R"("continue_final_message":true,"add_generation_prompt":true)",
       {}},
      {"add_special_tokens", R"("add_special_tokens":true)",
       [](auto& s) { return s.tokenizer->added_special_tokens; }},
      {"add_special_tokens", "", [](auto& s) { return !s.tokenizer->added_special_tokens; }},
      {"documents", R"("documents":[{"text":"d"}])",
       [](auto& s) { return has(s.prompt(), R"("documents":[{"text":"d"}])"); }},
      {"chat_template", R"("chat_template":"mine")",
       [](auto& s) { return has(s.prompt(), "mine"); }},
      {"chat_template_kwargs", R"("chat_template_kwargs":{"x":5})",
       [](auto& s) { return has(s.prompt(), R"("x":5)"); }},
      {"return_token_ids", R"("return_token_ids":true)",
       [](auto& s) {
         return s.choice().at("token_ids").as_array().size() == 18 &&
                s.body.at("prompt_token_ids").as_array().size() ==
                    s.request->prompt_token_ids.size();
       }},
      {"return_tokens_as_token_ids", R"("return_tokens_as_token_ids":true,"logprobs":true)",
       [](auto& s) {
         return s.choice().at("logprobs").at("content").at(0).at("token") == "token_id:60";
       }},
      {"include_reasoning", R"("include_reasoning":false)",
       [](auto& s) { return !s.choice().at("message").as_object().contains("reasoning"); }},
      {"include_reasoning", R"("include_reasoning":true)",
       [](auto& s) { return s.choice().at("message").at("reasoning") == "t"; }},
  };
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

std::vector<Row> completion_rows() {
  std::vector<Row> rows = shared_rows();
  const std::vector<Row> own{
      {"prompt", "", [](auto& s) { return s.prompt() == "hi"; }},
      {"echo", R"("echo":true)",
       [](auto& s) { return has(std::string(s.choice().at("text").as_string()), "hi<"); }},
      {"suffix", R"("suffix":"x")", {}},
      {"logprobs", R"("logprobs":2)",
       [](auto& s) { return s.choice().at("logprobs").at("tokens").as_array().size() == 6; }},
      {"best_of", R"("best_of":3)", {}},
      {"prompt_logprobs", R"("prompt_logprobs":1)",
       [](auto& s) { return s.choice().at("prompt_logprobs").as_array().size() == 2; }},
      {"prompt_logprobs", R"("prompt_logprobs":1,"stream":true)", {}},
      {"add_special_tokens", R"("add_special_tokens":false)",
       [](auto& s) { return !s.tokenizer->added_special_tokens; }},
      {"add_special_tokens", "", [](auto& s) { return s.tokenizer->added_special_tokens; }},
      {"return_token_ids", R"("return_token_ids":true)",
       [](auto& s) {
         return s.choice().at("token_ids").as_array().size() == 6 &&
                s.choice().at("prompt_token_ids").as_array().size() == 2;
       }},
      {"return_tokens_as_token_ids", R"("return_tokens_as_token_ids":true,"logprobs":0)",
       [](auto& s) { return s.choice().at("logprobs").at("tokens").at(0) == "token_id:60"; }},
  };
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

class Interfaces : public ServiceTest {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.served_model_names = {"first", "second"};
    options.reasoning_parser = "qwen3";
    options.trust_request_chat_template = true;
    options.enable_log_requests = true;
    options.log = [this](const std::string&, const std::string& line) { log_ += line + "\n"; };
    make_service(options);
    engine.answer = "<think>t</think>";
  }

  Seen send_row(bool to_chat, const std::string& members) {
    log_.clear();
    engine.requests.clear();
    engine.answer = to_chat ? "<think>t</think>x" : "<abcd";
    std::string body =
        to_chat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
    if (!members.empty()) body += "," + members;
    Seen seen;
    seen.answer =
        ask("POST", to_chat ? "/v1/chat/completions" : "/v1/completions", "{" + body + "}");
    if (!seen.answer.body.starts_with("data: ")) seen.body = seen.answer.parsed();
    seen.request = engine.requests.empty() ? nullptr : &engine.requests.back();
    seen.tokenizer = &engine.bytes;
    seen.log = log_;
    return seen;
  }

  void check(bool to_chat, const std::vector<Row>& rows, const char* listed) {
    std::set<std::string> missing;
    std::istringstream names(listed);
    for (std::string name; names >> name;) missing.insert(name);
    for (const Row& row : rows) {
      missing.erase(row.field);
      const Seen seen = send_row(to_chat, row.members);
      if (row.honoured) {
        ASSERT_EQ(seen.answer.status, 200) << row.members << seen.answer.body;
        EXPECT_TRUE(row.honoured(seen)) << row.field << " " << row.members << seen.answer.body;
      } else {
        EXPECT_EQ(seen.answer.status, std::string(row.field) == "model" ? 404 : 400) << row.members;
        EXPECT_EQ(seen.answer.error("param"), row.field) << row.members << seen.answer.body;
        EXPECT_EQ(seen.request, nullptr) << row.members;
      }
    }
    EXPECT_TRUE(missing.empty()) << "no row sends " << *missing.begin();
  }

  std::string log_;
};

TEST_F(Interfaces, EveryFieldOfChatIsHonouredOrRefused) { check(true, chat_rows(), kChatFields); }

TEST_F(Interfaces, EveryFieldOfCompletionsIsHonouredOrRefused) {
  check(false, completion_rows(), kCompletionFields);
}

TEST_F(Interfaces, EveryEndpointIsInTheDocumentation) {
  std::ifstream file(test::source_path("docs/api.md"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const server::Route& route : server::routes()) {
    const std::string name(route.name);
    const std::string shown = name + (name.ends_with('/') ? "{id}" : "");
    EXPECT_TRUE(has(text, ("`" + shown + "`").c_str()) ||
                has(text, ("`" + std::string(route.method) + " " + shown + "`").c_str()))
        << route.method << " " << shown;
  }
}

TEST_F(Interfaces, AnswersHaveEveryField) {
  const json::value body =
      send_row(true, R"("logprobs":true,"top_logprobs":1,"return_token_ids":true)").body;
  for (const char* name :
       {"id", "object", "created", "model", "choices", "usage", "system_fingerprint",
        "service_tier", "prompt_logprobs", "kv_transfer_params"})
    EXPECT_TRUE(body.as_object().contains(name)) << name;
  const json::object& choice = body.at("choices").at(0).as_object();
  for (const char* name :
       {"index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"})
    EXPECT_TRUE(choice.contains(name)) << name;
  for (const char* name :
       {"role", "content", "refusal", "tool_calls", "reasoning", "reasoning_content"})
    EXPECT_TRUE(choice.at("message").as_object().contains(name)) << name;
  const json::value& token = choice.at("logprobs").at("content").at(0);
  for (const char* name : {"token", "logprob", "bytes", "top_logprobs"})
    EXPECT_TRUE(token.as_object().contains(name)) << name;
  const json::object& usage = body.at("usage").as_object();
  EXPECT_EQ(usage.at("total_tokens").as_int64(),
            usage.at("prompt_tokens").as_int64() + usage.at("completion_tokens").as_int64());
  EXPECT_TRUE(usage.at("prompt_tokens_details").as_object().contains("cached_tokens"));
}

}  // namespace
}  // namespace zipage::testing_server
