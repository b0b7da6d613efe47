// The endpoints around generation, keys, CORS, states of the server.
#include <map>
#include <set>

#include "server/router.h"
#include "server/service_fixture.h"

namespace zipage::testing_server {
namespace {

class Endpoints : public ServiceTest {};

TEST_F(Endpoints, Models) {
  const json::value list = ask("GET", "/v1/models").parsed();
  EXPECT_EQ(list.at("data").at(0).at("id"), "fake");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 4096);
  EXPECT_EQ(ask("GET", "/v1/models/fake").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models/other").status, 404);
  const Answer wrong = complete(R"("prompt":"x","model":"other")");
  EXPECT_EQ(wrong.status, 404);
  EXPECT_EQ(wrong.error("type"), "NotFoundError");
  ServerOptions options;
  options.served_model_names = {"org/a", "b"};
  make_service(options);
  EXPECT_EQ(ask("GET", "/v1/models/org%2Fa").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models/org/a").status, 200);
  EXPECT_EQ(complete(R"("prompt":"x")").parsed().at("model"), "org/a");
  EXPECT_EQ(complete(R"("prompt":"x","model":"b")").parsed().at("model"), "b");
}

TEST_F(Endpoints, TokenizeAndBack) {
  const json::value v =
      ask("POST", "/tokenize", R"({"prompt":"hi","return_token_strs":true})").parsed();
  EXPECT_EQ(json::serialize(v.at("tokens")), "[104,105]");
  EXPECT_EQ(v.at("count"), 2);
  EXPECT_EQ(json::serialize(v.at("token_strs")), R"(["h","i"])");
  EXPECT_EQ(ask("POST", "/tokenize", R"({"messages":[{"role":"user","content":"x"}]})").status,
            200);
  EXPECT_EQ(ask("POST", "/tokenize", "{}").error("param"), "prompt");
  EXPECT_EQ(ask("POST", "/tokenize", R"({"prompt":"x","add_generation_prompt":true})").status, 400);
  EXPECT_EQ(ask("POST", "/detokenize", R"({"tokens":[104,105]})").parsed().at("prompt"), "hi");
  EXPECT_EQ(ask("POST", "/detokenize", R"({"tokens":[9999]})").error("param"), "tokens");
}

TEST_F(Endpoints, BrokenBodiesAre400) {
  for (const char* body : {"", "{", "[]", "nul", "{\"prompt\":\"x\"} x", "{\"prompt\":\"\xff\"}",
                           "{\"a\":\"\xed\xa0\x80\"}", "\xef\xbb\xbf{}"}) {
    const Answer answer = ask("POST", "/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.error("type"), "BadRequestError");
  }
  const Answer deep = ask("POST", "/v1/completions", std::string(100000, '['));
  EXPECT_EQ(deep.status, 400);
}

TEST_F(Endpoints, MessagesAreChecked) {
  const auto param = [&](const std::string& messages) {
    return ask("POST", "/v1/chat/completions", R"({"messages":)" + messages + "}").error("param");
  };
  EXPECT_EQ(param("[]"), "messages");
  EXPECT_EQ(param("[1]"), "messages[0]");
  EXPECT_EQ(param(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(param(R"([{"role":"robot","content":""}])"), "messages[0].role");
  EXPECT_EQ(param(R"([{"role":"user","content":"","x":1}])"), "messages[0].x");
  EXPECT_EQ(param(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "messages[0].content");
  chat(R"("n":1)");
  ask("POST", "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
      {"type":"text","text":"b"}]},{"role":"assistant","content":null,"refusal":null}]})");
  // As they are: the tokenizer brings them into the form that the template reads.
  const std::string text = engine.bytes.decode(engine.requests.back().prompt_token_ids, false);
  EXPECT_NE(text.find(R"("content":[{"type":"text","text":"a"},{"type":"text","text":"b"}])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("content":null)"), std::string::npos) << text;
}

TEST_F(Endpoints, KeysGuardAllButHealthAndPing) {
  ServerOptions options;
  options.api_keys = {"one", "two"};
  make_service(options);
  const std::vector<std::vector<Header>> wrong{{},
                                               {{"authorization", "Bearer on"}},
                                               {{"authorization", "Bearer one "}},
                                               {{"authorization", "Bearer "}},
                                               {{"authorization", "Basic one"}},
                                               {{"authorization", "one"}}};
  std::vector<std::string> paths{"/nothing", "/v1/models/x"};
  for (const server::Route& route : server::routes()) paths.emplace_back(route.name);
  for (const std::string& path : paths) {
    const bool open = path == "/health" || path == "/ping";
    for (const auto& headers : wrong) {
      for (const char* method :
           {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"}) {
        const Answer answer = ask(method, path, "{}", headers);
        if (open) {
          EXPECT_TRUE(answer.status == 200 || answer.status == 405) << path;
        } else {
          EXPECT_EQ(answer.status, 401) << method << " " << path;
        }
      }
    }
  }
  EXPECT_EQ(ask("GET", "/v1/health").status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"authorization", "Bearer two"}}).status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"authorization", "bearer one"}}).status, 200);
}

TEST_F(Endpoints, LoadingAndDraining) {
  make_service({}, /*loaded=*/false);
  const Answer loading = ask("GET", "/health");
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.error(), "Loading model");
  EXPECT_EQ(complete(R"("prompt":"x")").status, 503);
  EXPECT_EQ(ask("GET", "/ping").status, 200);
  EXPECT_EQ(ask("GET", "/metrics").status, 200);
  service->set_engine(engine);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  const auto running = send("POST", "/v1/completions", R"({"prompt":"x"})");
  service->drain();
  const Answer refused = complete(R"("prompt":"x")");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After"), std::string::npos);
  EXPECT_NE(refused.head.find("Connection: close"), std::string::npos);
  EXPECT_EQ(parse_answer(running->take_output()).status, 200);
}

TEST_F(Endpoints, RequestIdsCorsMethods) {
  EXPECT_NE(ask("GET", "/ping", "", {{"x-request-id", "abc"}}).head.find("X-Request-Id: abc\r\n"),
            std::string::npos);
  EXPECT_EQ(ask("GET", "/ping", "", {{"x-request-id", "a b"}}).head.find("X-Request-Id: a b"),
            std::string::npos);
  EXPECT_EQ(ask("GET", "/ping", "", {{"origin", "http://a"}}).head.find("Access-Control"),
            std::string::npos);
  const Answer method = ask("GET", "/v1/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_NE(method.head.find("Allow: POST"), std::string::npos);
  const Answer head = ask("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.body.empty());
  ServerOptions options;
  options.cors.allowed_origins = {"http://a"};
  make_service(options);
  EXPECT_NE(ask("GET", "/ping", "", {{"origin", "http://a"}})
                .head.find("Access-Control-Allow-Origin: http://a\r\n"),
            std::string::npos);
  EXPECT_EQ(ask("GET", "/ping", "", {{"origin", "http://b"}}).head.find("Access-Control"),
            std::string::npos);
  const Answer preflight = ask("OPTIONS", "/v1/completions", "",
                               {{"origin", "http://a"}, {"access-control-request-method", "POST"}});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_NE(preflight.head.find("Access-Control-Allow-Methods"), std::string::npos);
}

TEST_F(Endpoints, MetricsAreWellFormed) {
  complete(R"("prompt":"abc","n":2)");
  complete(R"("prompt":1)");
  const std::string text = ask("GET", "/metrics").body;
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line;
  };
  const std::string labels = R"({model_name="fake",engine="0")";
  has("zipage:request_success_total" + labels + R"(,finished_reason="stop"} 2)");
  has("zipage:request_generation_tokens_sum" + labels + "} 12");
  has("zipage:request_max_num_generation_tokens_count" + labels + "} 1");
  has("zipage:request_params_n_bucket" + labels + R"(,le="2"} 1)");
  has("zipage:time_to_first_token_seconds_count" + labels + "} 2");
  has("zipage:inter_token_latency_seconds_count" + labels + "} 10");
  has("zipage:kv_cache_usage_perc" + labels + "} 0");
  has(R"(http_requests_total{handler="/v1/completions",method="POST",status="200"} 1)");
  has(R"(http_requests_total{handler="/v1/completions",method="POST",status="400"} 1)");
  // A family is described once, before its samples.
  std::set<std::string> families;
  for (size_t at = text.find("# TYPE "); at != std::string::npos; at = text.find("# TYPE ", at + 1))
    EXPECT_TRUE(families.insert(text.substr(at, text.find('\n', at) - at)).second);
  ServerOptions options;
  options.metrics_prefix = "vllm";
  make_service(options);
  EXPECT_NE(ask("GET", "/metrics").body.find("vllm:num_requests_running{"), std::string::npos);
}

TEST_F(Endpoints, BlocksByState) {
  engine.num_used_blocks = 30;
  engine.num_cached_blocks = 50;
  EXPECT_EQ(ask("GET", "/load").parsed().at("used_blocks"), 30);
  const std::string text = ask("GET", "/metrics").body;
  for (const char* line :
       {"kv_cache_usage_perc{model_name=\"fake\",engine=\"0\"} 0.3\n", "state=\"used\"} 30\n",
        "state=\"cached\"} 50\n", "state=\"free\"} 20\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

// The value of a metric's sample; -1 when there is none.
double sample(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(metrics.substr(at + name.size() + 2));
}

// Each figure against what was sent: two requests, of two prompts and of one with n 2.
TEST_F(Endpoints, MetricsSayWhatWasSent) {
  engine.queue_seconds = 0.25;
  engine.prefill_seconds = 0.5;
  engine.decode_seconds = 2;
  complete(R"("prompt":["abc","de"],"max_tokens":3)");
  complete(R"("prompt":"fghi","n":2,"max_tokens":100)");
  ask("POST", "/v1/completions", "{}");
  ask("BREW", "/coffee");
  ask("LONGMETHOD", "/coffee");
  const std::string text = ask("GET", "/metrics").body;
  const std::string labels = "{model_name=\"fake\",engine=\"0\"}";
  const std::map<std::string, std::pair<double, double>> sums{
      {"request_queue_time_seconds", {4, 1}},
      {"request_prefill_time_seconds", {4, 2}},
      {"request_decode_time_seconds", {4, 8}},
      {"request_inference_time_seconds", {4, 10}},
      {"request_prompt_tokens", {4, 3 + 2 + 4 + 4}},
      {"request_generation_tokens", {4, 3 + 3 + 6 + 6}},
      {"request_max_num_generation_tokens", {2, 3 + 6}},
      {"request_params_max_tokens", {2, 103}},
      {"request_params_n", {2, 3}},
  };
  for (const auto& [name, wanted] : sums) {
    EXPECT_EQ(sample(text, "zipage:" + name + "_count" + labels), wanted.first) << name;
    EXPECT_NEAR(sample(text, "zipage:" + name + "_sum" + labels), wanted.second, 1e-9) << name;
  }
  EXPECT_EQ(sample(text, "zipage:time_to_first_token_seconds_count" + labels), 4);
  EXPECT_EQ(sample(text, "zipage:e2e_request_latency_seconds_count" + labels), 4);
  const std::string success = "zipage:request_success_total{model_name=\"fake\",engine=\"0\",";
  EXPECT_EQ(sample(text, success + "finished_reason=\"length\"}"), 2);
  EXPECT_EQ(sample(text, success + "finished_reason=\"stop\"}"), 2);
  const std::string http = "http_requests_total{handler=";
  EXPECT_EQ(sample(text, http + "\"/v1/completions\",method=\"POST\",status=\"200\"}"), 2);
  EXPECT_EQ(sample(text, http + "\"/v1/completions\",method=\"POST\",status=\"400\"}"), 1);
  // Whatever words clients invent, they are one label.
  EXPECT_EQ(sample(text, http + "\"none\",method=\"OTHER\",status=\"404\"}"), 2);
  EXPECT_EQ(text.find("BREW"), std::string::npos);
}

// A model in a folder whose name is not UTF-8: every answer is.
TEST_F(Endpoints, NamesThatAreNotUtf8) {
  engine.changed_info().model_name = "mod\xe9l";
  make_service({});
  const std::string name = "mod\xEF\xBF\xBDl";
  for (const Answer& answer :
       {ask("GET", "/v1/models"), complete(R"("prompt":"x")"), chat(""), ask("GET", "/metrics")}) {
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.find('\xe9'), std::string::npos) << answer.body;
    EXPECT_NE(answer.body.find(name), std::string::npos) << answer.body;
  }
  EXPECT_EQ(complete(R"("prompt":"x","model":")" + name + "\"").status, 200);
}

TEST_F(Endpoints, TokenizerInfo) {
  const json::value info = ask("GET", "/tokenizer_info").parsed();
  EXPECT_EQ(info.at("chat_template"), "{{ messages }}");
  EXPECT_EQ(info.at("model_max_length"), 4096);
  EXPECT_TRUE(info.at("bos_token").is_null());
  EXPECT_EQ(info.at("eos_token"), "");
}

TEST_F(Endpoints, LoadAndOpenapi) {
  send("POST", "/v1/completions", R"({"prompt":["a","b"]})");
  const auto turn = send("GET", "/load");
  const json::value load = parse_answer(turn->take_output()).parsed();
  EXPECT_EQ(load.at("server_load"), 1);
  EXPECT_EQ(load.at("unfinished_sequences"), 2);
  finish();
  EXPECT_EQ(ask("GET", "/load").parsed().at("server_load"), 0);
  const json::value api = ask("GET", "/openapi.json").parsed();
  EXPECT_TRUE(api.at("paths").as_object().contains("/v1/models/{id}"));
  EXPECT_TRUE(api.at_pointer("/paths/~1v1~1completions/post/requestBody/content/"
                             "application~1json/schema/properties")
                  .as_object()
                  .contains("kv_budget"));
}

TEST_F(Endpoints, LogsHoldNoPromptUnlessAsked) {
  for (const bool asked : {false, true}) {
    std::string log;
    ServerOptions options;
    options.enable_log_requests = asked;
    options.log = [&](const std::string&, const std::string& line) { log += line + "\n"; };
    make_service(options);
    complete(R"("prompt":"a secret\nline","user":"u1")");
    EXPECT_EQ(log.find("secret") != std::string::npos, asked) << log;
    EXPECT_EQ(log.find("secret\nline"), std::string::npos) << "a prompt may not break the line";
    EXPECT_NE(log.find("\"POST /v1/completions\" 200"), std::string::npos);
  }
}

}  // namespace
}  // namespace zipage::testing_server
