// What the program prints must arrive: on a full disk a command fails, whatever it had to say.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

#include "cli/program.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

bool has_full_device() { return std::filesystem::exists("/dev/full"); }

Outcome run_into_full_disk(const std::string& arguments) {
  return run_shell(std::string(ZIPAGE_PROGRAM) + " " + arguments + " > /dev/full");
}

TEST(OutputTest, AFullDiskIsAnErrorOfEveryCommandThatPrints) {
  if (!has_full_device()) GTEST_SKIP() << "/dev/full is not here";
  const test::TempFolder folder;
  const std::string memory = " --kv-cache-memory 64MiB --log-level error";
  const std::string batch = folder.write(
      "in.jsonl",
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","max_tokens":2}})"
      "\n");
  const std::vector<std::string> commands = {
      "tokenize " + kModel + " -p text",
      "tokenize " + kModel + " --ids -p text",
      "inspect " + kModel + memory,
      "run " + kModel + " -p 'mul 2*3' --max-tokens 8" + memory,
      "eval " + kModel + " --problems " + test::source_path("bench/problems/reasoner-dev.jsonl") +
          " --limit 1 --max-tokens 4" + memory,
      "run-batch " + kModel + " -i " + batch + " -o " + folder.file("out.jsonl") + memory,
      "bench latency " + kModel + " --input-len 8 --output-len 2 --num-iters 1" + memory,
      "--help",
      "run --help",
      "--version",
  };
  for (const std::string& command : commands) {
    const Outcome outcome = run_into_full_disk(command);
    EXPECT_EQ(outcome.code, 1) << command << ": " << outcome.output;
    EXPECT_NE(outcome.output.find("standard output cannot be written"), std::string::npos)
        << command << ": " << outcome.output;
  }
}

TEST(OutputTest, AFileOnAFullDiskIsNamed) {
  if (!has_full_device()) GTEST_SKIP() << "/dev/full is not here";
  const Outcome json = run("inspect " + kModel + " --kv-cache-memory 64MiB --json /dev/full");
  EXPECT_EQ(json.code, 1) << json.output;
  EXPECT_NE(json.output.find("--json: cannot write '/dev/full'"), std::string::npos) << json.output;
}

// A longer run stops when nobody can read it.
TEST(OutputTest, ARunThatNobodyReadsEnds) {
  if (!has_full_device()) GTEST_SKIP() << "/dev/full is not here";
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome =
      run_into_full_disk("run " + kModel + " -p 'mul 2*3' --ignore-eos --max-tokens 8000" +
                         " --kv-cache-memory 64MiB");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// Ctrl-C in an evaluation: no pass@1 of the problems that happened to be finished.
TEST(OutputTest, AnInterruptedEvaluationHasNoPassAtOne) {
  const test::TempFolder folder;
  const std::string json = folder.file("report.json");
  const std::string problems = folder.write("problems.jsonl", [] {
    std::string lines;
    std::ifstream file(test::source_path("bench/problems/reasoner-dev.jsonl"));
    std::string line;
    for (int i = 0; i < 300 && std::getline(file, line); ++i) lines += line + "\n";
    return lines;
  }());
  // Two run at a time, so that the interrupt finds some finished and others not begun.
  const Outcome outcome = run_shell(
      "timeout -s INT 10 " + std::string(ZIPAGE_PROGRAM) + " eval " + kModel + " --problems " +
      problems + " --max-num-seqs 2 --log-level error --kv-cache-memory 64MiB --plot " +
      folder.file("p.svg") + " --json " + json);
  ASSERT_NE(outcome.output.find("interrupted: "), std::string::npos)
      << "the machine answered everything in time: " << outcome.output;
  EXPECT_NE(outcome.output.find("(partial)"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find(" of 300 finished"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("no plot: no setting is finished"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.file("p.svg")));
  // No share of what was finished stands anywhere.
  EXPECT_EQ(outcome.output.find(" %"), std::string::npos) << outcome.output;
  std::ifstream file(json);
  const std::string report(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(report.find("\"pass_at_1\":null"), std::string::npos) << report;
  EXPECT_NE(report.find("\"problems\":300"), std::string::npos) << report;
  EXPECT_NE(report.find("\"partial\":true"), std::string::npos) << report;
  EXPECT_NE(report.find("\"unfinished\":["), std::string::npos) << report;
}

}  // namespace
}  // namespace zipage::cli
