// The load generator against a server over an engine that says what the test tells it to.
#include "cli/load_generator.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

#include "cli/load_dataset.h"
#include "cli/load_report.h"
#include "server/loopback.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

using testing_server::Loopback;

LoadTarget target_of(const Loopback& loopback) {
  LoadTarget target;
  target.url.host = "127.0.0.1";
  target.url.port = std::to_string(loopback.server->port());
  return target;
}

bool go_on(const LoadProgress&) { return true; }

DatasetOptions dataset(int64_t num_prompts) {
  DatasetOptions options;
  options.num_prompts = num_prompts;
  options.input_len = 8;
  options.output_len = 40;
  options.range_ratio = 0.5;
  return options;
}

TEST(LoadGenerator, StreamsArriveWholeAndInOrder) {
  Loopback loopback;
  loopback.engine.answer = "The quick brown fox jumps over the lazy dog";
  LoadOptions options;
  options.keep_output = true;
  for (const bool chat : {false, true}) {
    for (const bool stream : {false, true}) {
      DatasetOptions data = dataset(300);
      if (chat) data.endpoint = "/v1/chat/completions";
      data.stream = stream;
      data.return_token_ids = true;
      const auto requests = make_requests(data);
      ASSERT_EQ(requests.size(), 300u);
      const LoadRun run = run_load(target_of(loopback), options, requests, go_on);
      ASSERT_EQ(run.results.size(), 300u);
      EXPECT_GT(run.cpu_seconds, 0);
      for (const LoadResult& result : run.results) {
        ASSERT_EQ(result.failure, "");
        const auto length = static_cast<size_t>(result.output_tokens);
        ASSERT_GE(length, 20u);
        EXPECT_EQ(result.text, loopback.engine.answer.substr(0, length));
        EXPECT_EQ(result.token_ids.size(), length);
        if (!chat) {
          EXPECT_GE(result.prompt_tokens, 4);
          EXPECT_LE(result.prompt_tokens, 12);
        }
        if (!stream) continue;
        EXPECT_LE(result.start, result.first_token);
        EXPECT_LE(result.last_token, result.end);
        EXPECT_EQ(static_cast<int64_t>(result.gaps.size()) + 1, result.chunks);
      }
    }
  }
  EXPECT_TRUE(loopback.idle());
}

TEST(LoadGenerator, KeepsToConcurrencyAndRate) {
  Loopback loopback({}, std::chrono::microseconds(200));
  LoadOptions options;
  options.max_concurrency = 3;
  int64_t most = 0;
  LoadRun run = run_load(target_of(loopback), options, make_requests(dataset(40)),
                         [&](const LoadProgress& p) {
                           most = std::max(most, p.in_flight);
                           return true;
                         });
  EXPECT_EQ(run.peak_in_flight, 3);
  EXPECT_LE(most, 3);
  EXPECT_EQ(run.results.size(), 40u);
  // A regular process of 100 requests a second: 40 gaps are 0.4 s.
  options = {};
  options.request_rate = 100;
  options.burstiness = 1e6;
  run = run_load(target_of(loopback), options, make_requests(dataset(41)), go_on);
  EXPECT_GE(run.seconds, 0.39);
  double last = 0;
  for (const LoadResult& result : run.results) last = std::max(last, result.start);
  EXPECT_GE(last, 0.39);
  // Round the same requests until the time is over.
  options.duration_seconds = 0.5;
  run = run_load(target_of(loopback), options, make_requests(dataset(5)), go_on);
  EXPECT_GT(run.results.size(), 20u);
  EXPECT_LE(run.results.size(), 50u);
}

TEST(LoadGenerator, FailuresHaveReasons) {
  server::ServerOptions served;
  served.limits.max_queued_requests = 2;
  Loopback loopback(served, std::chrono::milliseconds(2));
  LoadRun run = run_load(target_of(loopback), {}, make_requests(dataset(20)), go_on);
  LoadReport report = make_report(run, {});
  EXPECT_GE(report.completed, 2);
  EXPECT_EQ(report.statuses[200] + report.statuses[429], 20);
  EXPECT_EQ(report.refused, report.statuses[429]);
  EXPECT_GT(report.refused, 0);
  EXPECT_EQ(report.refused_without_retry_after, 0);
  EXPECT_GE(report.retry_after.p50, 1);

  DatasetOptions wrong = dataset(2);
  wrong.model = "gpt-4";
  run = run_load(target_of(loopback), {}, make_requests(wrong), go_on);
  report = make_report(run, {});
  EXPECT_EQ(report.failures.count("HTTP 404: The model `gpt-4` does not exist."), 1u)
      << report_text(report, {});

  const LoadTarget gone = [&] {
    LoadTarget target = target_of(loopback);
    target.url.port = "1";
    return target;
  }();
  run = run_load(gone, {}, make_requests(dataset(3)), go_on);
  EXPECT_EQ(make_report(run, {}).failures.at("connect: Connection refused"), 3);
  EXPECT_THROW(http_get(gone, "/v1/models"), std::runtime_error);
  EXPECT_EQ(http_get(target_of(loopback), "/ping").status, 200);
}

TEST(LoadGenerator, Tls) {
  const test::TempFolder folder;
  const std::string command =
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext "
      "subjectAltName=IP:127.0.0.1 -keyout '" +
      folder.file("key.pem") + "' -out '" + folder.file("cert.pem") + "' 2>/dev/null";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no openssl program";
  server::ServerOptions served;
  served.ssl_certfile = folder.file("cert.pem");
  served.ssl_keyfile = folder.file("key.pem");
  Loopback loopback(served);
  LoadTarget target = target_of(loopback);
  target.url.tls = true;
  LoadRun run = run_load(target, {}, make_requests(dataset(2)), go_on);
  EXPECT_EQ(
      make_report(run, {}).failures.count("connect: certificate verify failed (SSL routines)"), 1u)
      << report_text(make_report(run, {}), {});
  target.insecure = true;
  run = run_load(target, {}, make_requests(dataset(20)), go_on);
  EXPECT_EQ(make_report(run, {}).completed, 20) << report_text(make_report(run, {}), {});
}

TEST(LoadGenerator, SilenceAndInterruptionEndARun) {
  Loopback loopback({}, std::chrono::seconds(3));  // a step takes that long
  LoadOptions options;
  options.timeout = std::chrono::seconds(1);
  LoadRun run = run_load(target_of(loopback), options, make_requests(dataset(2)), go_on);
  ASSERT_EQ(run.results.size(), 2u);
  EXPECT_EQ(run.results[0].failure, "timeout: nothing for 1 s");
  run = run_load(target_of(loopback), {}, make_requests(dataset(2)),
                 [](const LoadProgress& p) { return p.seconds < 0.3; });
  EXPECT_TRUE(run.interrupted);
  EXPECT_LT(run.seconds, 2);
}

TEST(LoadGenerator, ASlowReaderHoldsNobodyUp) {
  server::ServerOptions served;
  served.limits.max_stream_buffer_bytes = 16 << 10;
  Loopback loopback(served);
  loopback.engine.answer = std::string(3000, 'x');
  DatasetOptions data = dataset(10);
  data.output_len = 3000;
  data.range_ratio = 0;
  LoadOptions options;
  options.slow_readers = 1;
  const LoadRun run = run_load(target_of(loopback), options, make_requests(data), go_on);
  const LoadReport report = make_report(run, {});
  EXPECT_EQ(report.completed, 10) << report_text(report, {});
  EXPECT_EQ(report.output_tokens, 30000);
}

}  // namespace
}  // namespace zipage::cli
