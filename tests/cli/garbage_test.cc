// Garbage in: every broken model folder, problem file and flag gives one line that names what is
// wrong, exit code 1 or 2, and no crash.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "cli/program.h"
#include "support/files.h"
#include "support/source.h"

namespace zipage::cli {
namespace {

namespace fs = std::filesystem;

const std::string kProblems = test::source_path("bench/problems/reasoner-long.jsonl");

struct BadInput {
  std::string arguments;
  int code;
  std::string message;  // part of the line
};

void expect_refused(const BadInput& bad) {
  const Outcome outcome = run(bad.arguments);
  EXPECT_EQ(outcome.code, bad.code) << bad.arguments << "\n" << outcome.output;
  const size_t line = outcome.output.rfind("zipage: ");
  ASSERT_NE(line, std::string::npos) << bad.arguments << "\n" << outcome.output;
  const std::string last = outcome.output.substr(line);
  EXPECT_NE(last.find(bad.message), std::string::npos) << bad.arguments << "\n" << outcome.output;
  EXPECT_EQ(last.find('\n'), last.size() - 1) << bad.arguments << "\n" << outcome.output;
}

TEST(GarbageTest, Flags) {
  const std::string eval =
      "eval " + kModel + " --problems " + kProblems + " --limit 1 --log-level error ";
  for (const BadInput& bad : std::vector<BadInput>{
           {"eval --problems " + kProblems, 2, "MODEL"},
           {"eval " + kModel, 2, "--problems"},
           {eval + "--kv-budget 100", 2, "--kv-budget"},
           {eval + "--kv-budget none", 2, "--kv-budget"},
           {eval + "--kv-budget -256", 2, "--kv-budget"},
           {eval + "--kv-policy best", 2, "--kv-policy"},
           {eval + "--block-size 24", 2, "window"},
           {eval + "--block-size 0", 2, "--block-size"},
           {eval + "--window-size 0", 2, "window"},
           {eval + "--kv-budget 256 --protect-newest 300", 2, "protect"},
           {eval + "--pooling sometimes", 2, "--pooling"},
           {eval + "--pooling-width 4", 2, "pooling"},
           {eval + "--redundancy none", 2, "--redundancy"},
           {eval + "--redundancy-temperature 0", 2, "temperature"},
           {eval + "--score-decay 1.5", 2, "decay"},
           {eval + "--combine add", 2, "--combine"},
           {eval + "--scheduling greedy", 2, "--scheduling"},
           {eval + "--kv-cache-memory lots", 2, "--kv-cache-memory"},
           {eval + "--kv-cache-memory 1KiB", 1, "bytes"},
           {eval + "--kv-cache-memory 1GiB --kv-cache-space 1", 2, "--kv-cache-space"},
           {eval + "--kv-cache-dtype int3", 2, "--kv-cache-dtype"},
           {eval + "--dtype double", 2, "--dtype"},
           {eval + "--device tpu", 2, "tpu"},
           {eval + "--max-model-len 9k", 2, "--max-model-len"},
           {eval + "--max-num-seqs 0", 2, "--max-num-seqs"},
           {eval + "--max-num-seqs 64 --max-num-batched-tokens 8", 2, "--max-num-batched-tokens"},
           {eval + "--load-format pickle", 2, "pickle"},
           {eval + "--threads -1", 2, "--threads"},
           {eval + "--log-level loud", 2, "--log-level"},
           {eval + "--no-such-flag", 2, "--no-such-flag"},
           {eval + "--config /nonexistent.yaml", 1, "/nonexistent.yaml"},
           {eval + "--kv-trace /nonexistent/t.kvt", 1, "/nonexistent/t.kvt"},
           {eval + "--kv-trace /dev/full", 1,
            "/dev/full: the KV trace cannot be written: No space"},
           {eval + "--json /nonexistent/e.json", 1, "--json: cannot write '/nonexistent/e.json'"},
           {eval + "--plot /nonexistent/e.svg", 1, "--plot: cannot write '/nonexistent/e.svg'"},
           {eval + "--output /nonexistent/e.out", 1, "--output: cannot write"},
           {"eval --from a.json", 2, "--plot"},
           {eval + "--plot /tmp/never.svg --from a.json", 2, "--problems"},
           {"eval --plot /tmp/never.svg --from /nonexistent.json", 1, "/nonexistent.json"},
           {"eval --plot /tmp/never.svg --from /", 2, "a folder"},
           {"bench latency " + kModel + " --batch-size 300", 2, "--max-num-seqs 256"},
           {"bench latency " + kModel + " --output-len 9000 --log-level error", 2, "max_model_len"},
           {"bench latency " + kModel + " --num-iters 0", 2, "--num-iters"},
           {"inspect --by head " + kModel, 2, "--kv-trace"},
           {"inspect --kv-trace /nonexistent.kvt", 1, "/nonexistent.kvt"},
           {"inspect --kv-trace " + kProblems, 1, "no KV trace"},
           {"inspect " + kModel + " --kv-trace " + kProblems, 2, "not both"},
           {"inspect --kv-trace " + kProblems + " --by token", 2, "--by"},
           {"bench throughput " + kModel + " --kv-policy paper,peak", 2, "--kv-policy"},
           {"run " + kModel, 2, "-p"},
           {"bench serve --base-url localhost:8000", 2, "--base-url"},
           {"bench serve --base-url http://127.0.0.1:1", 1, "is the server running?"},
           {"bench serve --port 1", 1, "Connection refused"},
           {"bench serve --request-rate 0", 2, "--request-rate"},
           {"bench serve --request-rate fast", 2, "--request-rate"},
           {"bench serve --duration 3", 2, "--duration"},
           {"bench serve --endpoint /v1/embeddings", 2, "--endpoint"},
           {"bench serve --goodput ttft", 2, "--goodput"},
           {"bench serve --expect /nonexistent.jsonl", 1, "/nonexistent.jsonl"},
           {"run-batch " + kModel + " -i " + kProblems + " -o /tmp/x.jsonl", 2, "'custom_id'"},
           {"run-batch " + kModel + " -i /nonexistent.jsonl -o /tmp/x.jsonl", 1,
            "/nonexistent.jsonl"},
           {"run-batch " + kModel + " -o /tmp/x.jsonl", 2, "--input-file"},
           {"run-batch " + kModel + " -i a -o b --reasoning-parser x", 2, "--reasoning-parser"},
           {"frobnicate", 2, "subcommand"},
           {"", 2, "subcommand"},
       }) {
    expect_refused(bad);
  }
}

class BrokenFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::copy(kModel, folder_, fs::copy_options::recursive);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string command() const {
    return "eval " + folder_.string() + " --problems " + kProblems + " --limit 1 --log-level error";
  }
  const test::TempFolder temp_;
  const fs::path folder_ = temp_.file("model");
};

TEST_F(BrokenFilesTest, ModelFolders) {
  expect_refused({"inspect /nonexistent", 1, "/nonexistent"});
  fs::resize_file(folder_ / "model-00002-of-00003.safetensors", 1000000);
  expect_refused({command(), 1, "model-00002-of-00003.safetensors"});
  SetUp();
  fs::remove(folder_ / "model-00003-of-00003.safetensors");
  expect_refused({command(), 1, "model-00003-of-00003.safetensors"});
  SetUp();
  write("config.json", "{");
  expect_refused({command(), 1, "config.json"});
  write("config.json", R"({"architectures": ["NovelForCausalLM"], "model_type": "novel"})");
  expect_refused({command(), 1, "NovelForCausalLM"});
  fs::remove(folder_ / "config.json");
  expect_refused({command(), 1, "config.json"});
  SetUp();
  write("tokenizer.json", "[]");
  expect_refused({command(), 2, "tokenizer.json"});
  fs::remove(folder_ / "tokenizer.json");
  expect_refused({command(), 1, "tokenizer.json"});
}

TEST_F(BrokenFilesTest, ProblemFiles) {
  const auto refused = [&](const std::string& text, const std::string& message) {
    write("problems.jsonl", text);
    expect_refused({"eval " + kModel + " --problems " + (folder_ / "problems.jsonl").string() +
                        " --log-level error",
                    2, message});
  };
  refused("", "no problems");
  refused("{\"prompt\": \"x\"", "problems.jsonl:1");
  refused("{\"prompt\": \"x\"}", "'answer'");
  refused("\n{\"answer\": \"x\"}", "problems.jsonl:2: field 'prompt'");
  refused("{\"prompt\": 3, \"answer\": \"x\"}", "'prompt'");
  refused("{\"prompt\": \"\", \"answer\": \"x\"}", "'prompt'");
  refused("[1]", "expected a JSON object");
  refused("{\"prompt\": \"" + std::string(9000, 'x') + "\", \"answer\": \"x\"}", "max_model_len");
  expect_refused({"eval " + kModel + " --problems /nonexistent.jsonl", 1, "/nonexistent.jsonl"});
  expect_refused({"eval " + kModel + " --problems " + folder_.string(), 2, "a folder"});
}

TEST_F(BrokenFilesTest, TraceFiles) {
  const std::vector<std::string> commands = {"bench throughput " + kModel + " --log-level error",
                                             "bench schedule"};
  for (const std::string& command : commands) {
    const auto refused = [&](const std::string& text, const std::string& message) {
      write("trace.jsonl", text);
      expect_refused({command + " --trace " + (folder_ / "trace.jsonl").string(), 2, message});
    };
    refused("", "trace.jsonl: no requests in the trace");
    refused("{\"prompt_tokens\": 3}", "trace.jsonl:1: no field \"output_tokens\"");
    refused("{\"prompt_tokens\": 3, \"output_tokens\": 2, \"age\": 2}", "\"age\" 2");
    refused("{\"prompt_tokens\": 1e9, \"output_tokens\": 2}", "\"prompt_tokens\"");
    expect_refused({command + " --trace /nonexistent.jsonl", 1, "/nonexistent.jsonl"});
    expect_refused({command + " --trace " + folder_.string(), 2, "a folder"});
  }
}

TEST(GarbageTest, AnUnwritableReportIsAnError) {
  expect_refused({"bench throughput " + kModel +
                      " --num-prompts 1 --input-len 4 --output-len 2 --log-level error --json "
                      "/nonexistent/report.json",
                  1, "/nonexistent/report.json"});
}

TEST(HelpTest, EveryCommandAnswersHelp) {
  for (const char* command :
       {"", "run", "chat", "serve", "eval", "bench", "bench throughput", "bench latency",
        "bench schedule", "bench serve", "run-batch", "inspect", "tokenize"}) {
    const Outcome outcome = run(std::string(command) + " --help");
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_NE(outcome.output.find("--help"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace zipage::cli
