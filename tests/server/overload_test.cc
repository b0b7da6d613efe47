// Full queues: who is refused, and when it should come back.
#include <csignal>

#include "server/loopback.h"
#include "server/retry_after.h"

namespace zipage::testing_server {
namespace {

TEST(RetryAfter, FollowsTheRate) {
  server::RetryAfter r;
  // Nothing is known yet.
  EXPECT_EQ(r.refuse(100, 1), 1);
  r.change(100, 1000);
  // 2 a second.
  for (int i = 1; i <= 40; ++i) r.change(100 + 0.5 * i, -1);
  EXPECT_NEAR(r.rate(120), 2, 0.1);
  EXPECT_EQ(r.refuse(120, 4), 2);
  // Who is refused later comes later.
  int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t seconds = r.refuse(120, 1);
    EXPECT_GE(seconds, last);
    last = seconds;
  }
  EXPECT_NEAR(static_cast<double>(last), 24 / 2.0, 1.5);
  // They have come back meanwhile.
  for (int i = 1; i <= 40; ++i) r.change(120 + 0.5 * i, -1);
  EXPECT_LE(r.refuse(140, 1), 2);
}

// A server that had little to do is not slow: only busy time counts.
TEST(RetryAfter, IdleTimeSaysNothing) {
  server::RetryAfter r;
  for (int i = 0; i < 10; ++i) {
    // A fifth of a second of work in each ten.
    r.change(10.0 * i, 1);
    r.change(10.0 * i + 0.2, -1);
  }
  EXPECT_NEAR(r.rate(95), 5, 0.5);
  // Eight at once after that, and room for four.
  r.change(100, 4);
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) last = r.refuse(100, 1);
  EXPECT_EQ(last, 1);
}

TEST(RetryAfter, IsBounded) {
  server::RetryAfter r;
  r.change(0, 1000);
  // One in 50 s.
  r.change(50, -1);
  for (int i = 0; i < 100; ++i) {
    const int64_t seconds = r.refuse(60, 10);
    EXPECT_GE(seconds, 1);
    EXPECT_LE(seconds, 120);
  }
  // An hour later nothing is owed, whatever was promised.
  for (int i = 0; i < 60; ++i) r.change(3600 + i, -1);
  EXPECT_LE(r.refuse(3660, 1), 2);
}

class Overload : public ServiceTest {};

TEST_F(Overload, AFullQueueIs429WithRetryAfter) {
  ServerOptions options;
  options.limits.max_queued_requests = 2;
  make_service(options);
  const auto first = send("POST", "/v1/completions", R"({"prompt":["a","b"]})");
  const auto refused = send("POST", "/v1/completions", R"({"prompt":"c"})");
  const Answer answer = parse_answer(refused->take_output());
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.error("type"), "RateLimitError");
  EXPECT_NE(answer.head.find("Retry-After: 1\r\n"), std::string::npos) << answer.head;
  finish();
  // What can never be taken is no matter of waiting.
  EXPECT_EQ(complete(R"("prompt":["a","b","c"])").error("param"), "n");
  EXPECT_EQ(parse_answer(first->take_output()).status, 200);
  EXPECT_EQ(complete(R"("prompt":"c")").status, 200);
}

// What the workers refuse to submit is not in progress: it neither fills the queue nor holds up a drain.
TEST_F(Overload, ARequestThatNoWorkerTakesIsNotInProgress) {
  ServerOptions options;
  options.limits.max_queued_requests = 20;
  make_service(options);
  service->start_workers(/*num_threads=*/1, /*most_waiting=*/0);
  std::string prompts = R"("a")";
  for (int i = 0; i < 17; ++i) prompts += R"(,"a")";
  for (int i = 0; i < 3; ++i) {
    const Answer refused = complete("\"prompt\":[" + prompts + "]");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.error(), "too many large requests wait to be read");
  }
  EXPECT_EQ(complete(R"("prompt":"c")").status, 200);
  EXPECT_EQ(service->num_unfinished_sequences(), 0);
  service->stop_workers();
}

TEST(Signals, TheFirstDrainsTheSecondStops) {
  const auto run = [](bool twice) {
    Loopback loopback({}, std::chrono::milliseconds(1), /*signals=*/true);
    loopback.engine.answer = std::string(400, 'x');
    Socket running(loopback.server->port());
    running.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":500})"));
    std::string text = running.read_until("data: ");
    kill(getpid(), SIGTERM);
    int status = 0;
    for (int i = 0; i < 200 && status != 503; ++i)
      status = parse_answer(loopback.ask("GET /health HTTP/1.0\r\n\r\n")).status;
    EXPECT_EQ(status, 503);
    EXPECT_EQ(parse_answer(loopback.ask(post("/v1/completions", R"({"prompt":"x"})"))).status, 503);
    if (twice) kill(getpid(), SIGTERM);
    loopback.join();
    EXPECT_EQ(loopback.server->stopped_early(), twice);
    if (twice) return;
    text += running.read_to_end();
    EXPECT_EQ(events(parse_answer(text)).back().at("choices").at(0).at("finish_reason"), "stop");
  };
  run(false);
  run(true);
}

}  // namespace
}  // namespace zipage::testing_server
