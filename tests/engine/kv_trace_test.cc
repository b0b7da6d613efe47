// The trace of what compressions kept is complete, true to the run, and never its end.
#include "zipage/kv_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <map>
#include <set>
#include <sys/resource.h>

#include "engine/engine_fixture.h"
#include "support/files.h"

namespace zipage::testing_engine {
namespace {

class EngineKvTraceTest : public testing::Test {
 protected:
  EngineOptions options() const {
    EngineOptions o = capped_options();
    o.async_compression = true;
    return o;
  }
  const test::TempFolder folder_;
  const std::string path_ = folder_.file("run.kvt");
  const std::vector<TestProblem> problems_ = problems(600, 900, 3);
};

TEST_F(EngineKvTraceTest, EveryCompressionOfEveryRequestIsThere) {
  std::vector<Answer> plain;
  {
    const auto engine = make_engine(options());
    plain = answers(*engine, problems_);
  }
  EngineOptions traced = options();
  traced.kv_trace = path_;
  std::vector<Answer> result(problems_.size());
  std::vector<RequestId> ids;
  std::vector<int32_t> prompt_lengths;
  EngineStats stats;
  EngineInfo info;
  {
    const auto engine = make_engine(traced);
    for (size_t i = 0; i < problems_.size(); ++i) {
      Request request = greedy_request(*engine, problems_[i].prompt, 4096);
      request.external_id = "problem-" + std::to_string(i);
      prompt_lengths.push_back(static_cast<int32_t>(request.prompt_token_ids.size()));
      const auto id = engine->submit(std::move(request), collect_into(result[i]));
      ASSERT_TRUE(id.ok());
      ids.push_back(id.value());
    }
    engine->run_until_idle();
    stats = engine->stats();
    info = engine->info();
  }
  for (size_t i = 0; i < problems_.size(); ++i) EXPECT_EQ(result[i].tokens, plain[i].tokens) << i;

  const auto file = KvTraceFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  KvTraceRecord record;
  int64_t records = 0;
  std::map<uint64_t, std::set<int32_t>> layers_of_job;
  // What a head has left: only that can be kept by its next compression, or be newer than it.
  std::map<std::array<uint64_t, 3>, std::set<int32_t>> left;
  for (;;) {
    const auto more = file.value()->next(record);
    ASSERT_TRUE(more.ok()) << more.status().message();
    if (!more.value()) break;
    ++records;
    const auto at = std::find(ids.begin(), ids.end(), record.request_id);
    ASSERT_NE(at, ids.end());
    EXPECT_EQ(record.external_id, "problem-" + std::to_string(at - ids.begin()));
    EXPECT_EQ(record.index, 0);
    EXPECT_EQ(record.policy, KvPolicy::kPeak);
    EXPECT_EQ(record.num_heads, info.num_kv_heads);
    EXPECT_EQ(record.keep, 256);
    EXPECT_EQ(record.length, 320);
    EXPECT_EQ(record.prompt_length, prompt_lengths[static_cast<size_t>(at - ids.begin())]);
    EXPECT_TRUE(layers_of_job[record.job_id].insert(record.layer).second);
    for (int32_t head = 0; head < record.num_heads; ++head) {
      const auto begin = record.positions.begin() + head * record.keep;
      const std::set<int32_t> kept(begin, begin + record.keep);
      ASSERT_EQ(kept.size(), 256u);
      EXPECT_LT(*kept.rbegin(), record.tokens);
      // The newest 64 are protected, and only they.
      for (int32_t i = 0; i < record.keep; ++i) {
        const auto index = static_cast<size_t>(head * record.keep + i);
        EXPECT_EQ(std::isinf(record.scores[index]), record.positions[index] >= record.tokens - 64);
      }
      auto& before =
          left[{record.sequence, static_cast<uint64_t>(record.layer), static_cast<uint64_t>(head)}];
      if (!before.empty()) {
        const int32_t last_tokens = record.tokens - 64;
        for (const int32_t position : kept)
          EXPECT_TRUE(before.contains(position) || position >= last_tokens) << position;
      }
      before = kept;
    }
  }
  EXPECT_GT(stats.compressions, 10);
  EXPECT_EQ(static_cast<int64_t>(layers_of_job.size()), stats.compressions);
  EXPECT_EQ(records, stats.compressions * info.num_layers);
}

TEST_F(EngineKvTraceTest, AFullDiskEndsTheTraceAndNoRequest) {
  std::vector<Answer> plain;
  {
    const auto engine = make_engine(options());
    plain = answers(*engine, problems_);
  }
  for (const bool async : {false, true}) {
    EngineOptions traced = options();
    traced.async_compression = async;
    traced.kv_trace = path_;
    std::vector<std::string> warnings;
    traced.log = [&](const std::string& level, const std::string& line) {
      if (level == "warning") warnings.push_back(line);
    };
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    std::vector<Answer> result;
    {
      const auto engine = make_engine(traced);
      const rlimit small{10000, before.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
      result = answers(*engine, problems_);
      setrlimit(RLIMIT_FSIZE, &before);
    }
    std::signal(SIGXFSZ, old_handler);
    for (size_t i = 0; i < problems_.size(); ++i) {
      EXPECT_EQ(result[i].tokens, plain[i].tokens) << i;
      EXPECT_EQ(result[i].finish, FinishReason::kStop) << i;
    }
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_THAT(warnings[0], testing::HasSubstr(path_));
    const auto file = KvTraceFile::open(path_);
    ASSERT_TRUE(file.ok());
    KvTraceRecord record;
    int records = 0;
    for (;; ++records) {
      const auto more = file.value()->next(record);
      ASSERT_TRUE(more.ok()) << more.status().message();
      if (!more.value()) break;
    }
    EXPECT_GT(records, 0);
    EXPECT_LE(std::filesystem::file_size(path_), 10000u);
  }
}

TEST_F(EngineKvTraceTest, FilesThatCannotBeWrittenAreRefusedAtTheStart) {
  EngineOptions o = options();
  for (const std::string path : {"/nonexistent/t.kvt", "/dev/full", "/"}) {
    o.kv_trace = path;
    const auto engine = Engine::create(o);
    ASSERT_FALSE(engine.ok()) << path;
    EXPECT_THAT(engine.status().message(), testing::HasSubstr(path + ": the KV trace cannot be"));
  }
}

TEST_F(EngineKvTraceTest, FullKvLeavesAnEmptyTraceAndSaysSo) {
  EngineOptions o = exact_options();
  o.kv_trace = path_;
  std::string log;
  o.log = [&](const std::string&, const std::string& line) { log += line + "\n"; };
  make_engine(o);
  EXPECT_THAT(log, testing::HasSubstr("nothing is compressed"));
  KvTraceRecord record;
  const auto file = KvTraceFile::open(path_);
  ASSERT_TRUE(file.ok());
  const auto more = file.value()->next(record);
  ASSERT_TRUE(more.ok());
  EXPECT_FALSE(more.value());
}

}  // namespace
}  // namespace zipage::testing_engine
