// What bodies may hold, who may send them, and what becomes of those that may not.
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "server/body_budget.h"
#include "server/body_limits.h"
#include "server/host_names.h"
#include "server/json_scan.h"
#include "server/loopback.h"
#include "server/worker_pool.h"

namespace zipage::testing_server {
namespace {

using server::BodyBudget;
using server::HostNames;
using server::JsonScan;

std::string repeated(const std::string& what, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += what;
  return text;
}

// `{"field": [x,x,...]}` of so many.
std::string list_of(const std::string& field, int count, const std::string& item = "1") {
  return "{\"" + field + "\":[" + item + repeated("," + item, count - 1) + "]}";
}

// "field: error", or "" for a text within the limits, fed in pieces.
std::string scanned(const std::string& text, size_t piece = 7) {
  JsonScan scan(server::count_limits(
      {.max_model_len = 1000, .vocab_size = 2000, .max_sequences_per_request = 8}));
  for (size_t at = 0; at < text.size(); at += piece) {
    if (!scan.feed(std::string_view(text).substr(at, piece)))
      return scan.field() + ": " + scan.error();
  }
  return "";
}

TEST(JsonScan, CountsEachField) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
    EXPECT_EQ(scanned(list_of("stop_token_ids", 4096), piece), "");
    EXPECT_EQ(scanned(list_of("stop_token_ids", 4097), piece),
              "stop_token_ids: more than 4096 entries");
    EXPECT_EQ(scanned(list_of("documents", 1025, "{}"), piece),
              "documents: more than 1024 entries");
    EXPECT_EQ(scanned(list_of("unknown", 1025, "\"a,b\""), piece),
              "unknown: more than 1024 entries");
    // What is inside strings is text, whatever it looks like.
    EXPECT_EQ(scanned("{\"stop\":[\"" + repeated("[,{\\\",", 5000) + "\"]}", piece), "");
  }
  // One field's entries are not another's.
  EXPECT_EQ(scanned("{\"a\":[1" + repeated(",1", 900) + "],\"b\":[1" + repeated(",1", 900) + "]}"),
            "");
  // A context of ids, and a context of messages.
  EXPECT_EQ(scanned(list_of("prompt", 1 << 20), 1 << 16), "");
  EXPECT_EQ(scanned(list_of("messages", 1000, R"({"role":"user","content":"a"})")), "");
  EXPECT_EQ(scanned(list_of("messages", 1001, "{}")), "messages: more than 1000 entries");
}

TEST(JsonScan, CountsDepthFieldsAndValuesWithin) {
  EXPECT_EQ(scanned("{\"documents\":" + repeated("[", 31)), "");
  EXPECT_EQ(scanned("{\"documents\":" + repeated("[", 32)), ": nested more than 32 levels deep");
  std::string fields = "{\"a\":1";
  for (int i = 0; i < 255; ++i) fields += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_EQ(scanned(fields + "}"), "");
  EXPECT_EQ(scanned(fields + ",\"x\":1}"), ": more than 256 fields");
  EXPECT_EQ(scanned("[1" + repeated(",1", 300) + "]"), ": more than 256 fields");
  EXPECT_EQ(scanned(R"({"chat_template_kwargs":{"a":[1)" + repeated(",1", 5000) + "]}}"),
            "chat_template_kwargs: more than 4096 values");
}

TEST(BodyBudget, KeepsAQuarterForSmallBodies) {
  const auto budget = std::make_shared<BodyBudget>(4 << 20);
  {
    BodyBudget::Lease large(budget), more(budget), small(budget);
    EXPECT_TRUE(large.grow_to(3 << 20));
    EXPECT_TRUE(large.grow_to(1000));
    EXPECT_EQ(budget->used_bytes(), 3u << 20);
    EXPECT_FALSE(more.grow_to(100 << 10));
    EXPECT_EQ(budget->used_bytes(), 3u << 20);
    EXPECT_TRUE(small.grow_to(64 << 10));
    EXPECT_FALSE(budget->has_room(100 << 10));
    EXPECT_TRUE(budget->has_room(1000));
  }
  EXPECT_EQ(budget->used_bytes(), 0u);
}

TEST(HostNames, KnowsWhatAPublicNameIs) {
  const HostNames names({"llm.example.org", "*.corp.example"}, "0.0.0.0");
  for (const char* good :
       {"", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "localhost", "LOCALHOST:1", "gpu-box:8000",
        "printer.local", "a.b.svc.cluster.local:80", "llm.example.org", "LLM.example.org.:443",
        "a.corp.example", "10.1.2.3"})
    EXPECT_TRUE(names.accepts(good)) << good;
  for (const char* bad : {"evil.example", "evil.example:8000", "xllm.example.org", "corp.example",
                          "127.0.0.1.evil.example", "localhost.evil.example"})
    EXPECT_FALSE(names.accepts(bad)) << bad;
  EXPECT_TRUE(HostNames({"*"}, "").accepts("evil.example"));
  EXPECT_TRUE(HostNames({}, "me.example").accepts("me.example:8000"));
}

TEST(WorkerPool, RunsAndRefuses) {
  server::WorkerPool pool(1, 2);
  std::mutex gate;
  std::atomic<int> ran{0};
  gate.lock();
  std::atomic<bool> holds{false};
  ASSERT_TRUE(pool.submit([&] {
    holds = true;
    std::lock_guard lock(gate);
    ++ran;
  }));
  while (!holds) std::this_thread::yield();
  EXPECT_TRUE(pool.submit([&] { ++ran; }));
  EXPECT_TRUE(pool.submit([&] { ++ran; }));
  EXPECT_FALSE(pool.submit([&] { ++ran; }));
  gate.unlock();
  while (ran < 3) std::this_thread::yield();
  pool.stop();
  EXPECT_FALSE(pool.submit([] {}));
}

TEST(Limits, ALongContextMayFillItsBody) {
  EXPECT_EQ(server::most_body_bytes(0, 8192), 16u << 20);
  EXPECT_EQ(server::most_body_bytes(0, 1 << 20), 32u << 20);
  EXPECT_EQ(server::most_body_bytes(1000, 1 << 20), 1000u);
}

std::string head_of(const std::string& more, size_t length, const char* path = "/tokenize") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + more +
         "Content-Length: " + std::to_string(length) + "\r\n\r\n";
}

// Each is answered from its headers alone: the body never comes.
TEST(Admission, RefusesBeforeTheBody) {
  ServerOptions options;
  options.api_keys = {"k"};
  options.limits.read.max_body_bytes = 5000;
  options.limits.max_body_memory_bytes = 2000;
  Loopback loopback(options);
  const std::string key = "Authorization: Bearer k\r\n";
  const auto status = [&](const std::string& bytes) {
    return parse_answer(loopback.ask(bytes)).status;
  };
  EXPECT_EQ(status(head_of("", 1000)), 401);
  EXPECT_EQ(status(head_of("", 1000000)), 401);
  EXPECT_EQ(status(head_of("Expect: 100-continue\r\n", 1000)), 401);
  EXPECT_EQ(status(head_of("Authorization: Bearer x\r\n", 1000)), 401);
  EXPECT_EQ(status(head_of(key, 1000, "/nothing")), 404);
  EXPECT_EQ(status(head_of(key, 1000, "/v1/models")), 405);
  EXPECT_EQ(status(head_of(key, 5001)), 413);
  EXPECT_EQ(status(head_of(key, 4000)), 503);
  for (const char* type : {"text/plain", "text/plain; charset=utf-8",
                           "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"})
    EXPECT_EQ(status(head_of(key + "Content-Type: " + type + "\r\n", 10)), 415) << type;
  for (const char* encoding : {"gzip", "deflate", "br", "identity, gzip"})
    EXPECT_EQ(status(head_of(key + "Content-Encoding: " + encoding + "\r\n", 10)), 415);
  EXPECT_NE(loopback.ask(head_of(key + "Content-Encoding: gzip\r\n", 10))
                .find("Accept-Encoding: identity"),
            std::string::npos);
  const std::string body = R"({"prompt":"x"})";
  for (const char* type :
       {"", "Content-Type: application/json\r\n",
        "Content-Type: Application/JSON; charset=utf-8\r\n", "Content-Encoding: identity\r\n"}) {
    EXPECT_EQ(status(head_of(key + type + "Connection: close\r\n", body.size()) + body), 200)
        << type;
  }
}

TEST(Admission, HostsOfPublicNamesNeedToBeAllowedWithoutAKey) {
  const auto status = [](Loopback& loopback, const char* host) {
    return parse_answer(loopback.ask("GET /health HTTP/1.1\r\nConnection: close\r\nHost: " +
                                     std::string(host) + "\r\n\r\n"))
        .status;
  };
  Loopback open;
  EXPECT_EQ(status(open, "evil.example"), 403);
  EXPECT_EQ(status(open, "127.0.0.1:8000"), 200);
  // The URL of the request line wins over the header, as HTTP says.
  EXPECT_EQ(parse_answer(open.ask("GET http://evil.example/health HTTP/1.1\r\nHost: "
                                  "localhost\r\nConnection: close\r\n\r\n"))
                .status,
            403);
  EXPECT_EQ(parse_answer(open.ask("\r\nGET http://localhost:1/health HTTP/1.1\r\nHost: "
                                  "evil.example\r\nConnection: close\r\n\r\n"))
                .status,
            200);
  ServerOptions options;
  options.allowed_hosts = {"llm.example"};
  Loopback listed(options);
  EXPECT_EQ(status(listed, "llm.example"), 200);
  EXPECT_EQ(status(listed, "evil.example"), 403);
  ServerOptions keyed;
  keyed.api_keys = {"k"};
  Loopback guarded(keyed);
  EXPECT_EQ(status(guarded, "evil.example"), 200);
}

// Nothing behind a body that we do not understand is taken for a request.
TEST(Admission, TransferEncodingsOtherThanChunkedEndTheConnection) {
  Loopback loopback;
  const std::string smuggled = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string chunked = "0\r\n\r\n" + smuggled;
  for (const char* encoding :
       {"gzip", "identity", "xchunked", "chunked, gzip", "gzip, chunked", "chunked, identity",
        "chunked;x=y", "\"chunked\"", "chunked,", "gzip\r\nTransfer-Encoding: chunked",
        "chunked\r\nTransfer-Encoding: gzip"}) {
    const std::string text = loopback.ask(
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + std::string(encoding) +
        "\r\n\r\n" + chunked);
    const int status = parse_answer(text).status;
    EXPECT_TRUE(status == 501 || status == 400) << encoding << ": " << text;
    EXPECT_EQ(text.find("version\""), std::string::npos) << encoding;
    EXPECT_NE(text.find("Connection: close"), std::string::npos) << encoding;
  }
  EXPECT_EQ(parse_answer(loopback.ask("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                                      "gzip\r\n\r\n" +
                                      chunked))
                .status,
            501);
  // Two lengths.
  for (const char* both : {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                           "Transfer-Encoding: gzip\r\nContent-Length: 3\r\n"}) {
    const std::string text = loopback.ask("POST /tokenize HTTP/1.1\r\nHost: x\r\n" +
                                          std::string(both) + "\r\n" + chunked);
    EXPECT_EQ(parse_answer(text).status, 400) << both;
    EXPECT_EQ(text.find("version\""), std::string::npos) << both;
  }
}

TEST(Admission, OneHostHeader) {
  Loopback loopback;
  const auto status = [&](const std::string& head) {
    return parse_answer(loopback.ask(head + "Connection: close\r\n\r\n")).status;
  };
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: a/b\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: a, b\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost:\r\n"), 200);
  EXPECT_EQ(status("GET /health HTTP/1.0\r\n"), 200);
  EXPECT_EQ(status("GET health HTTP/1.1\r\nHost: a\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: a\r\nExpect: coffee\r\n"), 417);
}

TEST(Admission, RefusedClientsGetNoContinue) {
  Loopback loopback;
  const std::string text =
      loopback.ask(head_of("Expect: 100-continue\r\n", 100, "/nothing") + repeated("x", 100));
  EXPECT_EQ(text.find("100 Continue"), std::string::npos);
  EXPECT_EQ(parse_answer(text).status, 404);
}

// A body is refused at the first value too many, and its sender still reads the answer.
TEST(HostileBodies, AreRefusedWhileTheyCome) {
  Loopback loopback;
  const struct {
    const char* field;
    std::string body;
  } all[] = {
      {"chat_template_kwargs",
       R"({"messages":[],"chat_template_kwargs":{"a":1)" + repeated(R"(,"k":1)", 700000) + "}}"},
      {"messages", list_of("messages", 400000, R"({"role":"user","content":"a"})")},
      {"documents", list_of("documents", 2000000)},
      {"logit_bias", R"({"logit_bias":{"1":1)" + repeated(R"(,"1":1)", 1000000) + "}}"},
      {"stop", list_of("stop", 100000, "\"a\"")},
      {"tools", list_of("tools", 100000, "{}")},
  };
  for (const auto& [field, body] : all) {
    const Answer answer = parse_answer(loopback.ask(post("/v1/chat/completions", body)));
    EXPECT_EQ(answer.status, 400) << field;
    EXPECT_EQ(answer.error("param"), field);
  }
  EXPECT_TRUE(loopback.engine.requests.empty());
}

// 0 once nothing is kept of a body any more.
int64_t body_bytes(Loopback& loopback) {
  return parse_answer(loopback.ask("GET /load HTTP/1.0\r\n\r\n"))
      .parsed()
      .at("body_bytes")
      .to_number<int64_t>();
}

TEST(HostileBodies, TogetherTakeNoMoreThanTheBudget) {
  ServerOptions options;
  options.limits.max_body_memory_bytes = 4 << 20;
  Loopback loopback(options);
  // Three quarters of it, in chunks, never finished.
  std::vector<Socket> open;
  const std::string piece = R"({"prompt":")" + std::string(1 << 20, 'x');
  for (int i = 0; i < 3; ++i) {
    open.emplace_back(loopback.server->port());
    open.back().send(head_of("", 2 << 20, "/v1/completions") + piece);
  }
  for (int i = 0; i < 500 && body_bytes(loopback) < (5 << 19); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Answer refused = parse_answer(loopback.ask(post("/v1/completions", piece + "\"}")));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  // Small ones go on.
  EXPECT_EQ(parse_answer(loopback.ask(post("/v1/completions", R"({"prompt":"x","max_tokens":1})",
                                           "Connection: close\r\n")))
                .status,
            200);
  open.clear();
  for (int i = 0; i < 500 && body_bytes(loopback) > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(body_bytes(loopback), 0);
}

// Read by a worker, started on the io thread, answered as a small one is.
TEST(LargeBodies, AreServed) {
  Loopback loopback;
  const std::string prompt(40000, 'x');
  for (int i = 0; i < 3; ++i) {
    const Answer answer = parse_answer(loopback.ask(
        post("/v1/completions", R"({"truncate_prompt_tokens":3000,"prompt":")" + prompt + "\"}",
             "Connection: close\r\n")));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.parsed().at("usage").at("prompt_tokens"), 3000);
  }
  const Answer refused = parse_answer(loopback.ask(
      post("/v1/completions", R"({"prompt":")" + prompt + "\"}", "Connection: close\r\n")));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "prompt");
  // Many prompts: submitted by a worker.
  const Answer many = parse_answer(loopback.ask(
      post("/v1/completions", list_of("prompt", 200, "\"abc\""), "Connection: close\r\n")));
  EXPECT_EQ(many.status, 200);
  EXPECT_EQ(many.parsed().at("choices").as_array().size(), 200u);
  EXPECT_TRUE(loopback.idle());
}

// Clients that go away while a worker reads what they sent leave nothing behind.
TEST(LargeBodies, OfClientsWhoLeave) {
  Loopback loopback({}, std::chrono::microseconds(200));
  loopback.engine.answer = std::string(2000, 'x');
  const std::string request =
      post("/v1/completions",
           R"({"truncate_prompt_tokens":100,"max_tokens":2000,"stream":true,"prompt":")" +
               std::string(200000, 'x') + "\"}");
  for (int i = 0; i < 20; ++i) {
    Socket socket(loopback.server->port());
    socket.send(request);
    if (i % 2 == 0) {
      socket.reset();
    } else {
      socket.close();
    }
  }
  EXPECT_TRUE(loopback.idle());
}

}  // namespace
}  // namespace zipage::testing_server
