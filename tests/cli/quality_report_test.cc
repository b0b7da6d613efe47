// zipage eval: reports become points, points become a picture, and the program does both.
#include "cli/quality_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include "base/error.h"
#include "cli/program.h"
#include "support/errors.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

using test::expect_error;
using testing::HasSubstr;

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++n;
  return n;
}

std::string setting(const std::string& cache, double pass, double speed) {
  return fmt::format(
      R"({{"cache": "{}", "pass_at_1": {}, "problems": 300, "tokens_per_second": {}, "partial": false}})",
      cache, pass, speed);
}

TEST(QualityReportTest, ReadsOneSettingAndSeveral) {
  const test::TempFolder folder;
  const auto one = read_quality_report(folder.write("one.json", setting("peak 512", 0.99, 1234.5)));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].policy, "peak");
  EXPECT_EQ(one[0].budget, 512);
  EXPECT_EQ(one[0].pass, 0.99);
  EXPECT_EQ(one[0].problems, 300);
  EXPECT_EQ(one[0].tokens_per_second, 1234.5);
  const auto two = read_quality_report(
      folder.write("two.json", "{\"settings\": [" + setting("full KV", 1, 10) + "," +
                                   setting("paper 256", 0.5, 20) + ", {\"partial\": true}]}"));
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].budget, 0);
  EXPECT_EQ(two[1].policy, "paper");
}

TEST(QualityReportTest, BrokenReportsAreNamed) {
  const test::TempFolder folder;
  const auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    all.push_back("--from: " + folder.file("r.json"));
    expect_error(StatusCode::kInvalidArgument, all,
                 [&] { read_quality_report(folder.write("r.json", text)); });
  };
  refused("{", {"not JSON"});
  refused("[]", {"expected a JSON object"});
  refused("{}", {"'cache'", "eval --json"});
  refused("{\"settings\": 3}", {"'settings'"});
  refused("{\"settings\": []}", {"no whole setting"});
  refused("{\"settings\": [" + setting("full KV", 1, 10) + ", 4]}", {"setting 2"});
  refused(setting("peak", 1, 10), {"'cache'", "'peak'"});
  refused(setting("peak -4", 1, 10), {"'cache'"});
  refused(setting("peak 512", 1.5, 10), {"'pass_at_1'", "[0, 1]", "1.5"});
  refused(R"({"cache": "full KV", "pass_at_1": 1, "problems": 3})", {"'tokens_per_second'"});
}

TEST(QualityPlotTest, DrawsALineForEachPolicyAndAMarkForEachPoint) {
  std::vector<QualityPoint> points;
  for (const auto& [policy, best] :
       std::vector<std::pair<std::string, double>>{{"peak", 0.99}, {"paper", 0.73}}) {
    for (const int64_t budget : {128, 256, 512})
      points.push_back({"a<b>&c", policy, budget, best * static_cast<double>(budget) / 512, 300,
                        1e4 / static_cast<double>(budget)});
  }
  points.push_back({"a<b>&c", "", 0, 0.995, 300, 12});
  const std::string svg = draw_quality(points);
  EXPECT_EQ(count(svg, "<svg"), 1u);
  EXPECT_EQ(count(svg, "</svg>"), 1u);
  EXPECT_EQ(count(svg, "<polyline"), 4u);          // two panels, two policies
  EXPECT_EQ(count(svg, "<circle"), 3u + 3u + 1u);  // peak, and its entry in the legend
  EXPECT_EQ(count(svg, ">peak</text>"), 1u);
  EXPECT_EQ(count(svg, ">paper</text>"), 1u);
  EXPECT_EQ(count(svg, ">full KV</text>"), 1u);
  EXPECT_EQ(count(svg, ">256</text>"), 1u + 2u);  // the axis, and a label for each policy
  EXPECT_THAT(svg, HasSubstr("a&lt;b>&amp;c, 300 problems"));
  EXPECT_THAT(svg, HasSubstr("pass@1, %"));
  EXPECT_THAT(svg, HasSubstr("KV budget, tokens per layer and head"));
  EXPECT_THAT(svg, HasSubstr("output tokens a second"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  // Nothing lies outside the page.
  const std::regex number("(?:x|y|cx|cy|x1|x2|y1|y2)=\"([-0-9.]+)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), number), end; at != end; ++at) {
    const double value = std::stod((*at)[1]);
    EXPECT_GE(value, 0) << at->str();
    EXPECT_LE(value, 960) << at->str();
  }
}

TEST(QualityPlotTest, DrawsASinglePoint) {
  for (const QualityPoint& point :
       {QualityPoint{"m", "peak", 512, 1.0, 30, 100}, QualityPoint{"m", "", 0, 0.0, 0, 0}}) {
    const std::string svg = draw_quality({point});
    EXPECT_EQ(count(svg, "</svg>"), 1u);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
}

TEST(EvalTest, SeveralSettingsInOneCallAndTheirPicture) {
  const test::TempFolder folder;
  const std::string problems = folder.write("p.jsonl",
                                            "{\"prompt\": \"x\", \"answer\": \"1\"}\n"
                                            "{\"prompt\": \"mul 3*4\", \"answer\": \"12\"}\n");
  const Outcome outcome =
      run("eval " + kModel + " --problems " + problems +
          " --max-tokens 200 --block-size 32 --kv-budget full,64,128 --kv-policy peak,recency "
          "--protect-newest 16 --kv-cache-memory 64MiB --log-level error --json " +
          folder.file("r.json") + " --plot " + folder.file("a.svg") + " --kv-trace " +
          folder.file("t.kvt"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  for (const char* name : {"full KV", "peak 64", "recency 64", "peak 128", "recency 128"})
    EXPECT_THAT(outcome.output, HasSubstr(name));
  EXPECT_EQ(count(test::read_file(folder.file("a.svg")), "<polyline"), 4u);
  const Outcome traced = run("inspect --kv-trace " + folder.file("t-recency-64.kvt"));
  EXPECT_EQ(traced.code, 0) << traced.output;
  EXPECT_THAT(traced.output, HasSubstr("policy recency"));

  const Outcome again = run("eval --from " + folder.file("r.json") + "," + folder.file("r.json") +
                            " --plot " + folder.file("b.svg"));
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(test::read_file(folder.file("a.svg")), test::read_file(folder.file("b.svg")));
}

}  // namespace
}  // namespace zipage::cli
