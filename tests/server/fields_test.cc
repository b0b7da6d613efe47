// Every field is honoured or refused by name; none is ignored.
#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>

#include "server/field_table.h"
#include "server/service_fixture.h"
#include "support/source.h"

namespace zipage::testing_server {
namespace {

using server::FieldInfo;
using server::Support;

class Fields : public ServiceTest {
 protected:
  Answer with(unsigned endpoint, const std::string& field, const std::string& value) {
    const std::string member = "\"" + field + "\":" + value;
    if (endpoint == server::kChat) {
      if (field == "messages") return ask("POST", "/v1/chat/completions", "{" + member + "}");
      return chat(member);
    }
    return complete(field == "prompt" ? member : "\"prompt\":\"x\"," + member);
  }
};

// One value a field that asks for something and must be taken.
const std::map<std::string, std::string> kTaken{
    {"model", R"("fake")"},
    {"messages", R"([{"role":"user","content":"x"}])"},
    {"prompt", R"("x")"},
    {"n", "2"},
    {"store", "true"},
    {"metadata", R"({"a":"b"})"},
    {"service_tier", R"("flex")"},
    {"prediction", R"({"type":"content","content":"x"})"},
    {"prompt_cache_key", R"("a")"},
    {"prompt_cache_retention", R"("24h")"},
    {"safety_identifier", R"("a")"},
    {"max_tokens", "3"},
    {"max_completion_tokens", "3"},
    {"min_tokens", "1"},
    {"truncate_prompt_tokens", "1"},
    {"temperature", "0.5"},
    {"top_p", "0.5"},
    {"top_k", "5"},
    {"min_p", "0.1"},
    {"typical_p", "0.9"},
    {"presence_penalty", "1"},
    {"frequency_penalty", "1"},
    {"repetition_penalty", "1.5"},
    {"seed", "7"},
    {"logit_bias", R"({"65": -100})"},
    {"allowed_token_ids", "[65]"},
    {"bad_words", R"(["x"])"},
    {"stop", R"(["a","b"])"},
    {"stop_token_ids", "[66]"},
    {"include_stop_str_in_output", "true"},
    {"ignore_eos", "true"},
    {"stream", "true"},
    {"skip_special_tokens", "false"},
    {"return_token_ids", "true"},
    {"return_tokens_as_token_ids", "true"},
    {"include_reasoning", "false"},
    {"add_special_tokens", "true"},
    {"add_generation_prompt", "false"},
    {"continue_final_message", "true"},
    {"chat_template_kwargs", R"({"a":1})"},
    {"documents", R"([{"text":"d"}])"},
    {"reasoning_effort", R"("low")"},
    {"user", R"("me")"},
    {"request_id", R"("abc")"},
    {"priority", "3"},
    {"cache_salt", R"("s")"},
    {"kv_budget", "64"},
    {"kv_policy", R"("paper")"},
};
// Honoured fields whose test is elsewhere, since they need company.
const char* const kElsewhere[] = {"stream_options",  "logprobs", "top_logprobs",
                                  "prompt_logprobs", "echo",     "chat_template"};

TEST_F(Fields, EachHonouredFieldIsTaken) {
  for (const FieldInfo& field : server::field_table()) {
    for (const unsigned endpoint : {server::kChat, server::kCompletion}) {
      if ((field.endpoints & endpoint) == 0 || field.support != Support::kHonoured) continue;
      const std::string name(field.name);
      if (std::find(std::begin(kElsewhere), std::end(kElsewhere), name) != std::end(kElsewhere))
        continue;
      ASSERT_TRUE(kTaken.contains(name)) << "no test value for " << name;
      const Answer answer = with(endpoint, name, kTaken.at(name));
      EXPECT_EQ(answer.status, 200) << name << answer.body;
    }
  }
}

TEST_F(Fields, NullIsNeutralEverywhere) {
  for (const FieldInfo& field : server::field_table()) {
    for (const unsigned endpoint : {server::kChat, server::kCompletion}) {
      if ((field.endpoints & endpoint) == 0) continue;
      if (field.name == "messages" || field.name == "prompt") continue;
      const Answer answer = with(endpoint, std::string(field.name), "null");
      EXPECT_EQ(answer.status, 200) << field.name << answer.body;
    }
  }
}

// Whatever is said about storing, billing and caching: the answer is the same.
TEST_F(Fields, WhatNoAnswerDependsOnIsAccepted) {
  for (const char* field :
       {R"("store":true)", R"("metadata":{"a":"b"})", R"("service_tier":"flex")",
        R"("prediction":{"type":"content","content":"x"})", R"("prompt_cache_key":"a")",
        R"("prompt_cache_retention":"24h")", R"("safety_identifier":"a")", R"("user":"a")"}) {
    EXPECT_EQ(chat(field).status, 200) << field;
    EXPECT_EQ(complete(std::string(R"("prompt":"x",)") + field).status, 200) << field;
  }
  EXPECT_EQ(chat(R"("metadata":"a")").error("param"), "metadata");
  const char* tools = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(chat(fmt::format(R"("tools":{},"tool_choice":"none")", tools)).status, 200);
  EXPECT_EQ(chat(fmt::format(R"("functions":{},"function_call":"none")", tools)).status, 200);
  EXPECT_EQ(chat(fmt::format(R"("tools":{})", tools)).error("param"), "tools");
  EXPECT_EQ(chat(fmt::format(R"("tools":{},"tool_choice":"auto")", tools)).error("param"), "tools");
  EXPECT_EQ(chat(fmt::format(R"("tools":{},"tool_choice":"required")", tools)).error("param"),
            "tool_choice");
  EXPECT_EQ(chat(R"("tools":5,"tool_choice":"none")").error("param"), "tools");
}

TEST_F(Fields, NullIsAbsent) {
  for (const FieldInfo& field : server::field_table()) {
    const std::string null = "\"" + std::string(field.name) + "\":null";
    const std::string name(field.name);
    if ((field.endpoints & server::kChat) != 0 && name != "messages") {
      EXPECT_EQ(chat(null).status, 200) << name << chat(null).body;
    }
    if ((field.endpoints & server::kCompletion) != 0 && name != "prompt") {
      EXPECT_EQ(complete(R"("prompt":"x",)" + null).status, 200) << name;
    }
    if ((field.endpoints & server::kTokenize) != 0 && name != "prompt") {
      EXPECT_EQ(ask("POST", "/tokenize", R"({"prompt":"x",)" + null + "}").status, 200) << name;
    }
    if ((field.endpoints & server::kDetokenize) != 0 && name != "tokens") {
      EXPECT_EQ(ask("POST", "/detokenize", R"({"tokens":[65],)" + null + "}").status, 200) << name;
    }
  }
  EXPECT_EQ(chat(R"("guided_json":null,"logit_bias":{"5":null})").status, 200);
  EXPECT_EQ(chat(R"("structured_outputs":{"json":null,"regex":null})").status, 200);
  EXPECT_EQ(chat(R"("guided_json":{})").error("param"), "guided_json");
}

// Every integer field: what is an integer is read exactly, what is none or too large is refused.
TEST_F(Fields, IntegersAreReadExactlyOrRefused) {
  for (const FieldInfo& field : server::field_table()) {
    if (field.type != server::FieldType::kInteger || (field.endpoints & server::kGenerate) == 0)
      continue;
    const std::string name(field.name);
    const auto answer = [&](const std::string& value) {
      const std::string text = "\"" + name + "\":" + value;
      return (field.endpoints & server::kCompletion) != 0 ? complete(R"("prompt":"x",)" + text)
                                                          : chat(text + R"(,"logprobs":true)");
    };
    for (const char* wrong :
         {"1.5", "1e400", "-1e400", "9223372036854775808", "18446744073709551616", "1e19",
          "-9223372036854775809", "\"1\"", "true", "[1]", "{}", "5e-324"}) {
      const Answer refused = answer(wrong);
      EXPECT_EQ(refused.status, 400) << name << " " << wrong;
      EXPECT_TRUE(refused.error("param") == name ||
                  refused.error().find("not JSON") != std::string::npos)
          << name << " " << wrong << refused.body;
    }
    if (name != "seed") {
      EXPECT_EQ(answer("4294967297").status, 400) << name;
    }
    if (name == "thinking_token_budget" || name == "priority") continue;
    for (const char* one : {"1", "1.0", "1e0", "10e-1", "0.1e1"})
      EXPECT_EQ(answer(one).status, 200) << name << " " << one << answer(one).body;
  }
  complete(
      R"("prompt":[65.0,6.6e1],"seed":9007199254740993,"allowed_token_ids":[65.0],"max_tokens":2e0)");
  const Request& request = engine.requests.back();
  EXPECT_EQ(request.prompt_token_ids, (std::vector<int32_t>{65, 66}));
  EXPECT_EQ(request.sampling.seed, 9007199254740993u);
  EXPECT_EQ(request.sampling.max_tokens, 2);
  EXPECT_EQ(complete(R"("prompt":[65.5])").error("param"), "prompt");
  EXPECT_EQ(complete(R"("prompt":[4294967361])").error("param"), "prompt");
}

TEST_F(Fields, WhatIsNotSupportedIsRefusedByName) {
  const std::map<std::string, std::string> values{{"best_of", "5"},
                                                  {"length_penalty", "2"},
                                                  {"use_beam_search", "true"},
                                                  {"suffix", R"("x")"},
                                                  {"spaces_between_special_tokens", "false"},
                                                  {"response_format", R"({"type":"json_object"})"},
                                                  {"structured_outputs", R"({"regex":"a"})"},
                                                  {"tools", R"([{"type":"function"}])"},
                                                  {"tool_choice", R"("required")"},
                                                  {"parallel_tool_calls", "1"},
                                                  {"functions", "[1]"},
                                                  {"function_call", R"({"name":"f"})"},
                                                  {"thinking_token_budget", "5"},
                                                  {"modalities", R"(["audio"])"}};
  const std::map<std::string, std::string> neutral{{"length_penalty", "1.0"},
                                                   {"use_beam_search", "false"},
                                                   {"suffix", R"("")"},
                                                   {"spaces_between_special_tokens", "true"},
                                                   {"response_format", R"({"type":"text"})"},
                                                   {"structured_outputs", "{}"},
                                                   {"tools", "[]"},
                                                   {"tool_choice", R"("none")"},
                                                   {"parallel_tool_calls", "true"},
                                                   {"functions", "[]"},
                                                   {"function_call", R"("none")"},
                                                   {"modalities", R"(["text"])"},
                                                   {"best_of", "1"},
                                                   {"thinking_token_budget", "null"}};
  for (const FieldInfo& field : server::field_table()) {
    for (const unsigned endpoint : {server::kChat, server::kCompletion}) {
      if ((field.endpoints & endpoint) == 0 || field.support != Support::kNeutral) continue;
      const std::string name(field.name);
      ASSERT_TRUE(values.contains(name) && neutral.contains(name)) << name;
      const Answer refused = with(endpoint, name, values.at(name));
      EXPECT_EQ(refused.status, 400) << name;
      EXPECT_EQ(refused.error("param"), name);
      const Answer taken = with(endpoint, name, neutral.at(name));
      EXPECT_EQ(taken.status, 200) << name << taken.body;
    }
  }
}

TEST_F(Fields, WrongTypesAndUnknownNamesAreRefusedByName) {
  for (const FieldInfo& field : server::field_table()) {
    for (const unsigned endpoint : {server::kChat, server::kCompletion}) {
      if ((field.endpoints & endpoint) == 0) continue;
      // An object where none is taken, a number where an object is.
      const bool object = field.type == server::FieldType::kObject;
      const Answer answer = with(endpoint, std::string(field.name), object ? "3.5" : R"({"q":[]})");
      EXPECT_EQ(answer.status, 400) << field.name;
      EXPECT_EQ(answer.error("param"), field.name);
    }
  }
  for (const unsigned endpoint : {server::kChat, server::kCompletion}) {
    EXPECT_EQ(with(endpoint, "temprature", "1").error("param"), "temprature");
    EXPECT_EQ(with(endpoint, "guided_json", "{}").error("param"), "guided_json");
  }
}

TEST_F(Fields, ReachTheEngine) {
  complete(R"("prompt":"x","temperature":0.5,"top_p":0.25,"top_k":5,"min_p":0.125,"seed":9,
    "presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"typical_p":0.75,
    "logit_bias":{"65":-2.5},"allowed_token_ids":[65,66],"bad_words":["no"],"stop":"s",
    "stop_token_ids":[7],"include_stop_str_in_output":true,"ignore_eos":true,"min_tokens":2,
    "max_tokens":4,"skip_special_tokens":false,"priority":-3,"cache_salt":"salt","logprobs":2,
    "kv_budget":"full","kv_policy":"paper","request_id":"r1","n":2)");
  ASSERT_EQ(engine.requests.size(), 1u);
  const Request& r = engine.requests[0];
  const SamplingParams& p = r.sampling;
  EXPECT_EQ(p.temperature, 0.5);
  EXPECT_EQ(p.top_p, 0.25);
  EXPECT_EQ(p.top_k, 5);
  EXPECT_EQ(p.min_p, 0.125);
  EXPECT_EQ(p.typical_p, 0.75);
  EXPECT_EQ(p.seed, 9u);
  EXPECT_EQ(p.presence_penalty, 1);
  EXPECT_EQ(p.frequency_penalty, -1);
  EXPECT_EQ(p.repetition_penalty, 1.5);
  EXPECT_EQ(p.logit_bias, (std::map<int32_t, float>{{65, -2.5f}}));
  EXPECT_EQ(p.allowed_token_ids, (std::vector<int32_t>{65, 66}));
  EXPECT_EQ(p.bad_words, std::vector<std::string>{"no"});
  EXPECT_EQ(p.stop, std::vector<std::string>{"s"});
  EXPECT_EQ(p.stop_token_ids, std::vector<int32_t>{7});
  EXPECT_TRUE(p.include_stop_str_in_output);
  EXPECT_TRUE(p.ignore_eos);
  EXPECT_EQ(p.min_tokens, 2);
  EXPECT_EQ(p.max_tokens, 4);
  EXPECT_FALSE(p.skip_special_tokens);
  EXPECT_EQ(p.logprobs, 2);
  EXPECT_EQ(p.n, 2);
  EXPECT_EQ(p.kv_budget, kFullKv);
  EXPECT_EQ(p.kv_policy, KvPolicy::kPaper);
  EXPECT_EQ(r.priority, -3);
  EXPECT_EQ(r.cache_salt, "salt");
  EXPECT_EQ(r.external_id, "cmpl-r1");
}

TEST_F(Fields, DefaultsOfTheTwoEndpointsDiffer) {
  complete(R"("prompt":"x")");
  chat("");
  ASSERT_EQ(engine.requests.size(), 2u);
  EXPECT_EQ(engine.requests[0].sampling.max_tokens, 16);
  EXPECT_FALSE(engine.requests[1].sampling.max_tokens.has_value());
}

TEST_F(Fields, ValuesThatAreNotWhatTheyLookLike) {
  complete(R"("prompt":"x","seed":-1,"allowed_token_ids":null)");
  complete(R"("prompt":"x","seed":-2)");
  complete(R"("prompt":"x","max_tokens":0,"echo":true)");
  ASSERT_EQ(engine.requests.size(), 3u);
  EXPECT_FALSE(engine.requests[0].sampling.seed.has_value()) << "vLLM's way to ask for none";
  EXPECT_FALSE(engine.requests[0].sampling.allowed_token_ids.has_value());
  EXPECT_TRUE(engine.requests[1].sampling.seed.has_value());
  EXPECT_EQ(engine.requests[2].sampling.max_tokens, 0);
  // An empty list is not the absence of one.
  EXPECT_EQ(complete(R"("prompt":"x","allowed_token_ids":[])").error("param"), "allowed_token_ids");
}

TEST_F(Fields, AreAllInTheDocumentation) {
  std::ifstream file(test::source_path("docs/api.md"));
  std::stringstream text;
  text << file.rdbuf();
  for (const FieldInfo& field : server::field_table()) {
    EXPECT_NE(text.str().find("`" + std::string(field.name) + "`"), std::string::npos)
        << "docs/api.md does not name " << field.name;
  }
}

}  // namespace
}  // namespace zipage::testing_server
