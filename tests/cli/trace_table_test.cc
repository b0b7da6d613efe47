// zipage inspect --kv-trace: the shares are those of a count by hand, and the program shows a run.
#include "cli/trace_table.h"

#include <boost/json.hpp>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <set>

#include "cli/program.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

using testing::HasSubstr;

// Heads keep `keep` random positions; the newest 10 are protected.
KvTraceRecord random_record(std::mt19937_64& random, int32_t tokens, int32_t prompt, int32_t keep) {
  KvTraceRecord r;
  r.num_heads = 3;
  r.tokens = tokens;
  r.prompt_length = prompt;
  r.length = keep + 16;
  r.keep = keep;
  for (int32_t head = 0; head < r.num_heads; ++head) {
    std::set<int32_t> kept;
    while (static_cast<int32_t>(kept.size()) < keep)
      kept.insert(static_cast<int32_t>(random() % static_cast<uint64_t>(tokens)));
    for (const int32_t position : kept) {
      r.positions.push_back(position);
      r.scores.push_back(position >= tokens - 10 ? std::numeric_limits<float>::infinity()
                                                 : static_cast<float>(random() % 1000) / 500 - 1);
    }
  }
  return r;
}

TEST(KeptPartsTest, SharesAreThoseOfACountByHand) {
  std::mt19937_64 random{3};
  for (const auto& [tokens, prompt, keep] : std::vector<std::array<int32_t, 3>>{{500, 100, 128},
                                                                                {129, 128, 128},
                                                                                {70, 3, 16},
                                                                                {64, 64, 48},
                                                                                {3, 2, 2},
                                                                                {1000, 990, 64},
                                                                                {97, 1, 97}}) {
    SCOPED_TRACE(tokens);
    const KvTraceRecord r = random_record(random, tokens, prompt, keep);
    KeptParts parts;
    for (int32_t head = 0; head < r.num_heads; ++head)
      parts.add(r, r.positions.data() + head * keep, r.scores.data() + head * keep);
    double sum = 0, least = std::numeric_limits<double>::infinity();
    int64_t num_protected = 0;
    std::array<KeptParts::Share, 4> regions;
    std::array<KeptParts::Share, 10> tenths;
    for (int32_t head = 0; head < r.num_heads; ++head) {
      const auto begin = r.positions.begin() + head * keep;
      for (int32_t p = 0; p < tokens; ++p) {
        const size_t region = p < 4 ? 0 : p >= tokens - 64 ? 3 : p < prompt ? 1 : 2;
        size_t tenth = 0;
        while (p >= static_cast<int64_t>(tenth + 1) * tokens / 10) ++tenth;
        const auto found = std::find(begin, begin + keep, p);
        ++regions[region].tokens;
        ++tenths[tenth].tokens;
        if (found == begin + keep) continue;
        ++regions[region].kept;
        ++tenths[tenth].kept;
        const float score = r.scores[static_cast<size_t>(found - r.positions.begin())];
        if (std::isinf(score)) {
          ++num_protected;
        } else {
          sum += score;
          least = std::min<double>(least, score);
        }
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(parts.regions[i].kept, regions[i].kept) << i;
      EXPECT_EQ(parts.regions[i].tokens, regions[i].tokens) << i;
    }
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(parts.tenths[i].kept, tenths[i].kept) << i;
      EXPECT_EQ(parts.tenths[i].tokens, tenths[i].tokens) << i;
    }
    EXPECT_EQ(parts.num_protected, num_protected);
    EXPECT_EQ(parts.num_scores, 3 * keep - num_protected);
    EXPECT_NEAR(parts.score_sum, sum, 1e-9);
    if (parts.num_scores > 0) {
      EXPECT_EQ(parts.score_min, least);
    }
  }
}

TEST(TraceTableTest, RowsAndFilters) {
  std::mt19937_64 random{4};
  const auto table = [&](TraceRows by, const std::string& request, int64_t compression) {
    TraceTable result(by, request, compression);
    for (uint64_t sequence : {1, 2, 3}) {
      for (uint64_t job : {10, 20}) {
        for (int32_t layer : {0, 1}) {
          KvTraceRecord r = random_record(random, 300, 50, 128);
          r.sequence = sequence;
          r.request_id = sequence < 3 ? 1 : 2;  // two sequences of one request
          r.index = sequence == 2 ? 1 : 0;
          r.external_id = sequence == 3 ? "chat-7" : "";
          r.job_id = sequence * 100 + job;
          r.layer = layer;
          result.add(r);
        }
      }
    }
    return result;
  };
  const auto rows = [&](TraceRows by, const std::string& request = "", int64_t compression = 0) {
    return table(by, request, compression).json().size();
  };
  EXPECT_EQ(rows(TraceRows::kRequest), 3u);
  EXPECT_EQ(rows(TraceRows::kCompression), 6u);
  EXPECT_EQ(rows(TraceRows::kLayer), 2u);
  EXPECT_EQ(rows(TraceRows::kHead), 6u);
  EXPECT_EQ(rows(TraceRows::kCompression, "1"), 4u);
  EXPECT_EQ(rows(TraceRows::kCompression, "1.1"), 2u);
  EXPECT_EQ(rows(TraceRows::kCompression, "chat-7", 2), 1u);
  EXPECT_EQ(rows(TraceRows::kCompression, "", 3), 0u);
  EXPECT_EQ(table(TraceRows::kLayer, "", 0).summary(),
            "6 compressions of 2 requests, 2 layers x 3 KV heads, policy peak");
  const std::string text = table(TraceRows::kCompression, "", 0).text();
  EXPECT_THAT(text, HasSubstr("100%"));
  EXPECT_THAT(text, HasSubstr("\n1.1 "));
  EXPECT_THAT(text, HasSubstr("\nchat-7 "));
}

TEST(InspectTraceTest, ShowsARun) {
  const test::TempFolder folder;
  const std::string path = folder.file("run.kvt");
  const Outcome traced = run("run " + kModel +
                             " -p 'mul 12345*56789' --temp 0 --kv-budget 128 --block-size 32 "
                             "--kv-cache-memory 64MiB --log-level error --kv-trace " +
                             path);
  ASSERT_EQ(traced.code, 0) << traced.output;
  const Outcome shown = run("inspect --kv-trace " + path + " --json " + folder.file("t.json"));
  ASSERT_EQ(shown.code, 0) << shown.output;
  EXPECT_THAT(shown.output, HasSubstr(" compressions of 1 request, "));
  EXPECT_THAT(shown.output, HasSubstr("policy peak"));
  const auto report = boost::json::parse(test::read_file(folder.file("t.json"))).as_object();
  const auto& rows = report.at("rows").as_array();
  ASSERT_GT(rows.size(), 2u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i].as_object();
    EXPECT_EQ(row.at("compression").as_int64(), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(row.at("kept").as_int64(), 128);
    EXPECT_EQ(row.at("tokens").as_int64(), 160 + 32 * static_cast<int64_t>(i));
    EXPECT_EQ(row.at("share_kept").as_object().at("newest").as_double(), 1.0);
  }
  const Outcome by_layer = run("inspect --kv-trace " + path + " --by layer --compression 1");
  EXPECT_EQ(by_layer.code, 0);
  EXPECT_THAT(by_layer.output, HasSubstr("layer"));
  const Outcome none = run("inspect --kv-trace " + path + " --request 9");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.output, HasSubstr("--request"));

  // Cut short: what is whole is shown, and the error names the place.
  const std::string bytes = test::read_file(path);
  folder.write("cut.kvt", bytes.substr(0, bytes.size() - 100));
  const Outcome cut = run("inspect --kv-trace " + folder.file("cut.kvt"));
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.output, HasSubstr("compressions of 1 request,"));
  EXPECT_THAT(cut.output, HasSubstr("cut.kvt: byte "));
}

}  // namespace
}  // namespace zipage::cli
