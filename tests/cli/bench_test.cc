// zipage bench latency: what it reports is consistent with itself.
#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

TEST(BenchLatencyTest, ReportsPercentilesOfStepsAndBatches) {
  const test::TempFolder folder;
  const Outcome outcome = run("bench latency " + kModel +
                              " --batch-size 3 --input-len 20 --output-len 12 --num-iters 4 "
                              "--num-iters-warmup 1 --log-level error --kv-cache-memory 64MiB "
                              "--json " +
                              folder.file("r.json"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, testing::HasSubstr("end to end"));
  EXPECT_THAT(outcome.output, testing::HasSubstr("p99"));
  const auto report = boost::json::parse(test::read_file(folder.file("r.json"))).as_object();
  EXPECT_EQ(report.at("latencies").as_array().size(), 4u);
  EXPECT_EQ(report.at("peak_running").as_int64(), 3);
  // One step takes the prompts, the other 11 tokens of each are decoded.
  const auto samples = [&](const char* part) {
    return report.at(part).as_object().at("samples").to_number<int64_t>();
  };
  EXPECT_EQ(samples("first_token_ms"), 12);
  EXPECT_EQ(samples("prompt_step_ms"), 4);
  EXPECT_EQ(samples("decode_step_ms"), 44);
  double sum = 0, largest = 0;
  for (const auto& value : report.at("latencies").as_array()) {
    sum += value.to_number<double>();
    largest = std::max(largest, value.to_number<double>());
  }
  EXPECT_NEAR(report.at("avg_latency").to_number<double>(), sum / 4, 1e-9);
  EXPECT_NEAR(report.at("tokens_per_second").to_number<double>(), 36 / (sum / 4), 1e-6);
  const auto& percentiles = report.at("percentiles").as_object();
  double last = 0;
  for (const char* name : {"10", "25", "50", "75", "90", "99"}) {
    const double value = percentiles.at(name).to_number<double>();
    EXPECT_GE(value, last) << name;
    EXPECT_LE(value, largest) << name;
    last = value;
  }
  // The steps are what the batches are made of.
  const auto mean = [&](const char* part) {
    return report.at(part).as_object().at("mean").to_number<double>();
  };
  EXPECT_NEAR(mean("prompt_step_ms") + 11 * mean("decode_step_ms"), 1e3 * sum / 4,
              0.1 * 1e3 * sum / 4 + 2);
  EXPECT_LE(mean("first_token_ms"), mean("end_to_end_ms"));
}

}  // namespace
}  // namespace zipage::cli
