// The targets of the simulation of the whole trace.
#include "schedule/simulate.h"

#include <fstream>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/files.h"
#include "support/source.h"

namespace zipage {
namespace {

const std::string kTrace = test::source_path("bench/traces/amc23-like.jsonl");

SimulationResult run(SimulatedScheduler scheduler, int32_t shared_prefix_tokens) {
  SimulationOptions options;
  options.scheduler = scheduler;
  options.shared_prefix_tokens = shared_prefix_tokens;
  return simulate(options, read_trace(kTrace));
}

class WholeTrace : public ::testing::TestWithParam<int32_t> {};

TEST_P(WholeTrace, HybridRunsMoreThanConstrainedAndRecomputesLittle) {
  const SimulationResult constrained = run(SimulatedScheduler::kConstrained, GetParam());
  const SimulationResult hybrid = run(SimulatedScheduler::kHybrid, GetParam());
  EXPECT_GE(constrained.mean_running_steady, 150);
  EXPECT_GE(hybrid.mean_running_steady, constrained.mean_running_steady);
  EXPECT_LE(hybrid.recomputed_fraction, 0.01);
  EXPECT_LE(hybrid.steps, constrained.steps);
  EXPECT_EQ(hybrid.output_tokens, constrained.output_tokens);
}

INSTANTIATE_TEST_SUITE_P(SharedPrefix, WholeTrace, ::testing::Values(0, 1000));

TEST(SimulateTest, ABrokenTraceNamesFileAndLine) {
  const test::TempFolder folder;
  const std::string path = folder.file("broken_trace.jsonl");
  const std::pair<const char*, const char*> cases[] = {
      {"{\"prompt_tokens\": 3, \"output_tokens\": 4}\n{\"prompt_tokens\": 3",
       ":2: not a JSON object"},
      {"{\"prompt_tokens\": 3}", ":1: no field \"output_tokens\""},
      {"{\"prompt_tokens\": 0, \"output_tokens\": 4}", "\"prompt_tokens\" is 0"},
      {"{\"prompt_tokens\": 3, \"output_tokens\": 4, \"age\": 4}", "\"age\" 4 leaves nothing"},
      {"{\"prompt_tokens\": \"x\", \"output_tokens\": 4}", "not an integer"},
      {"", "no requests"},
  };
  for (const auto& [text, message] : cases) {
    std::ofstream(path) << text;
    try {
      read_trace(path);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(SimulateTest, ARequestThatCannotFitIsAnError) {
  SimulationOptions options;
  options.num_blocks = 4;
  EXPECT_THROW(simulate(options, {{100, 100, 0}, {5000, 10, 0}}), Error);
}

TEST(SimulateTest, ThePublishedSchedulerThrashesWhereOursDoesNot) {
  const SimulationResult published = run(SimulatedScheduler::kPublished, 0);
  EXPECT_GT(published.recomputed_fraction, 0.05);
}

}  // namespace
}  // namespace zipage
