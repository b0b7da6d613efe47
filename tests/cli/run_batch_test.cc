// zipage run-batch: whole batches, resumed ones, full disks.
#include <boost/json.hpp>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <unistd.h>

#include "cli/batch_file.h"
#include "cli/program.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

namespace json = boost::json;

std::string completion_line(int i, int max_tokens) {
  return R"({"custom_id":"c)" + std::to_string(i) +
         R"(","method":"POST","url":"/v1/completions","body":{"prompt":"mul )" +
         std::to_string(10 + i) + R"(*7","max_tokens":)" + std::to_string(max_tokens) +
         R"(,"temperature":0,"ignore_eos":true}})" + "\n";
}

std::string command(const std::string& in, const std::string& out) {
  return "run-batch " + kModel + " -i '" + in + "' -o '" + out +
         "' --dtype float32 --block-size 64 --kv-cache-memory 64MiB --threads 1 --log-level "
         "warning";
}

std::map<std::string, json::value> lines_of(const std::string& path) {
  std::map<std::string, json::value> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const json::value value = json::parse(line);
    EXPECT_TRUE(lines.emplace(std::string(value.at("custom_id").as_string()), value).second)
        << "twice: " << line;
  }
  return lines;
}

TEST(RunBatch, AnswersAndErrorsByLine) {
  const test::TempFolder folder;
  const std::string in = folder.write(
      "in.jsonl",
      completion_line(0, 8) +
          R"({"custom_id":"chat","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"mul 1234*5678"}],"max_tokens":400,"temperature":0}})"
          "\n\n"
          R"({"custom_id":"field","method":"POST","url":"/v1/completions","body":{"prompt":"x","temperature":-1}})"
          "\n"
          R"({"custom_id":"unknown","method":"POST","url":"/v1/completions","body":{"prompt":"x","temprature":1}})"
          "\n"
          R"({"custom_id":"url","method":"POST","url":"/v1/embeddings","body":{}})"
          "\n"
          R"({"custom_id":"method","method":"GET","url":"/v1/completions","body":{}})"
          "\n"
          R"({"custom_id":"stream","method":"POST","url":"/v1/completions","body":{"prompt":"x","stream":true}})"
          "\n");
  const Outcome outcome = run(command(in, folder.file("out.jsonl")) + " --reasoning-parser qwen3");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("7 of 7 answered, 7 by this run (5 refused)"), std::string::npos)
      << outcome.output;
  auto lines = lines_of(folder.file("out.jsonl"));
  ASSERT_EQ(lines.size(), 7u);
  const json::value& completion = lines["c0"];
  EXPECT_TRUE(completion.at("error").is_null());
  EXPECT_EQ(completion.at("response").at("status_code"), 200);
  const json::value& body = completion.at("response").at("body");
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 8);
  const json::value& message =
      lines["chat"].at("response").at("body").at("choices").at(0).at("message");
  EXPECT_NE(message.at("content").as_string().find("7006652"), std::string::npos)
      << json::serialize(message);
  EXPECT_FALSE(message.at("reasoning").as_string().empty());
  const auto refused = [&](const char* id, int status, const json::value& param) {
    const json::value& line = lines[id];
    EXPECT_EQ(line.at("response").at("status_code"), status) << id;
    EXPECT_EQ(line.at("response").at("body").at("error").at("param"), param) << id;
    EXPECT_EQ(line.at("error").at("code"), status) << id;
  };
  refused("field", 400, "temperature");
  refused("unknown", 400, "temprature");
  refused("url", 404, "url");
  refused("method", 405, "method");
  refused("stream", 400, "stream");
}

TEST(RunBatch, IsResumed) {
  const test::TempFolder folder;
  std::string input;
  for (int i = 0; i < 12; ++i) input += completion_line(i, 12);
  const std::string in = folder.write("in.jsonl", input), out = folder.file("out.jsonl");
  ASSERT_EQ(run(command(in, out)).code, 0);
  const std::string whole = test::read_file(out);
  const auto all = lines_of(out);
  ASSERT_EQ(all.size(), 12u);
  // Nothing to do: the file stays as it is.
  EXPECT_EQ(run(command(in, out)).code, 0);
  EXPECT_EQ(test::read_file(out), whole);
  // Cut anywhere: whole lines stay byte for byte, the rest is answered again, with the same text.
  for (const size_t keep : {size_t{0}, size_t{3}, whole.find('\n'), whole.find('\n') + 1,
                            whole.size() / 2, whole.size() - 1}) {
    folder.write("out.jsonl", whole.substr(0, keep));
    const Outcome outcome = run(command(in, out));
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    const size_t kept = keep == 0 ? 0 : whole.rfind('\n', keep - 1) + 1;  // npos + 1 = 0
    EXPECT_EQ(test::read_file(out).substr(0, kept), whole.substr(0, kept)) << keep;
    EXPECT_EQ(outcome.output.find("half-written") != std::string::npos, kept != keep) << keep;
    auto again = lines_of(out);
    ASSERT_EQ(again.size(), 12u) << keep;
    for (const auto& [id, line] : all) {
      EXPECT_EQ(again[id].at("response").at("body").at("choices"),
                line.at("response").at("body").at("choices"))
          << id;
    }
  }
}

TEST(RunBatch, FilesOfOthersAreLeftAlone) {
  const test::TempFolder folder;
  const std::string in = folder.write("in.jsonl", completion_line(0, 2));
  for (const std::string text :
       {"my notes", "my notes\n", "{\"a\":1}\n", "{\"custom_id\":\"other\",\"response\":{}}\n"}) {
    const std::string out = folder.write("out.jsonl", text);
    const Outcome outcome = run(command(in, out));
    EXPECT_EQ(outcome.code, 2) << outcome.output;
    EXPECT_NE(outcome.output.find("out.jsonl:1"), std::string::npos) << outcome.output;
    EXPECT_EQ(test::read_file(out), text);
  }
  EXPECT_EQ(run(command(in, in)).code, 2);
  const std::string twice =
      folder.write("twice.jsonl", completion_line(3, 2) + completion_line(3, 2));
  const Outcome outcome = run(command(twice, folder.file("o.jsonl")));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.output.find("twice.jsonl:2: field 'custom_id'"), std::string::npos)
      << outcome.output;
}

TEST(RunBatch, AFullDiskIsSaidAndResumed) {
  const test::TempFolder folder;
  std::string input;
  for (int i = 0; i < 12; ++i) input += completion_line(i, 60);
  const std::string in = folder.write("in.jsonl", input), out = folder.file("out.jsonl");
  const Outcome full = run(command(in, "/dev/full"));
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.output.find("zipage: -o /dev/full: No space left on device"), std::string::npos)
      << full.output;
  // A limit of 4 KiB on the file's size does as a disk that fills up in the middle.
  const Outcome limited =
      run_shell("ulimit -f 4; " + std::string(ZIPAGE_PROGRAM) + " " + command(in, out));
  EXPECT_EQ(limited.code, 1) << limited.output;
  EXPECT_NE(limited.output.find("run the same command again"), std::string::npos) << limited.output;
  const auto before = lines_of(out);  // whole lines only
  EXPECT_GT(before.size(), 0u);
  EXPECT_LT(before.size(), 12u);
  EXPECT_EQ(run(command(in, out)).code, 0);
  EXPECT_EQ(lines_of(out).size(), 12u);
}

TEST(RunBatch, CtrlCEndsCleanlyAndIsResumed) {
  const test::TempFolder folder;
  std::string input;
  for (int i = 0; i < 40; ++i) input += completion_line(i, 20 + 40 * i);
  const std::string in = folder.write("in.jsonl", input), out = folder.file("out.jsonl");
  // The signal comes once the first answers are there.
  const Outcome outcome =
      run_shell(std::string(ZIPAGE_PROGRAM) + " " + command(in, out) +
                " --max-num-seqs 4 & pid=$!; for i in "
                "$(seq 600); do [ -s '" +
                out + "' ] && break; sleep 0.05; done; kill -INT $pid; wait $pid");
  EXPECT_EQ(outcome.code, 130) << outcome.output;
  EXPECT_NE(outcome.output.find("run the same command again"), std::string::npos) << outcome.output;
  const auto before = lines_of(out);
  EXPECT_GT(before.size(), 0u);
  EXPECT_LT(before.size(), 40u);
  EXPECT_EQ(run(command(in, out)).code, 0);
  EXPECT_EQ(lines_of(out).size(), 40u);
}

TEST(BatchOutput, OneWriterAtATime) {
  const test::TempFolder folder;
  BatchOutput first(folder.file("out.jsonl"), {"a"});
  EXPECT_THROW(BatchOutput(folder.file("out.jsonl"), {"a"}), std::runtime_error);
  first.append(batch_line("a", "1", 200, "{}"));
  first.close();
  BatchOutput second(folder.file("out.jsonl"), {"a"});
  EXPECT_EQ(second.answered().count("a"), 1u);
  EXPECT_FALSE(second.cut());
}

}  // namespace
}  // namespace zipage::cli
