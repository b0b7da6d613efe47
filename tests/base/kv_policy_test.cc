#include "zipage/kv_policy.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "base/kv_policy_names.h"
#include "support/source.h"

namespace zipage {
namespace {

using testing::HasSubstr;

std::string yes(bool value) { return value ? "yes" : ""; }
std::string unless_zero(int32_t value) { return value == 0 ? "" : std::to_string(value); }

// A row of the table in docs/policies.md.
std::string docs_row(const KvPolicyTraits& p) {
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |", p.name,
                     static_cast<int>(p.policy), p.summary, yes(p.needs_queries), yes(p.needs_f),
                     p.has_redundancy ? fmt::format("{}", p.score_weight) : "",
                     unless_zero(p.protect_newest), unless_zero(p.sink_tokens));
}

TEST(KvPolicyTest, TheDocsTableHasEveryRow) {
  std::ifstream file(test::source_path("docs/policies.md"));
  std::stringstream docs;
  docs << file.rdbuf();
  for (const KvPolicyTraits& policy : kKvPolicies) {
    EXPECT_THAT(docs.str(), HasSubstr(docs_row(policy)));
  }
}

TEST(KvPolicyTest, RowsAreComplete) {
  std::set<std::string> names, marks;
  for (const KvPolicyTraits& policy : kKvPolicies) {
    EXPECT_TRUE(names.insert(policy.name).second) << policy.name;
    EXPECT_STRNE(policy.summary, "") << policy.name;
    EXPECT_THAT(policy.plot_color, testing::MatchesRegex("#[0-9a-f]+")) << policy.name;
    EXPECT_TRUE(marks.insert(policy.plot_color).second) << policy.name;
    // F that follows attention is made of queries.
    EXPECT_TRUE(!policy.updates_f || (policy.needs_f && policy.needs_queries)) << policy.name;
  }
}

TEST(KvPolicyTest, NamesAreListedForPeople) {
  EXPECT_EQ(kv_policy_names(), "peak, paper, attention, redundancy, global, recency or random");
}

}  // namespace
}  // namespace zipage
