// What the load generator makes of answers and times.
#include "cli/load_report.h"

#include <cmath>
#include <gtest/gtest.h>

#include "cli/load_answer.h"

namespace zipage::cli {
namespace {

TEST(AnswerNotes, AStream) {
  LoadResult result;
  AnswerNotes notes(result, /*keep_output=*/true);
  notes.event(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})", 0.5);
  EXPECT_LT(result.first_token, 0);  // a role is no token
  notes.event(R"({"choices":[{"index":0,"delta":{"reasoning":"hm"},"finish_reason":null}]})", 1.0);
  notes.event(R"({"choices":[{"delta":{"content":"a"},"token_ids":[7,8]}]})", 1.25);
  notes.event(R"({"choices":[{"delta":{"content":"b"},"token_ids":[9],"finish_reason":"stop"}]})",
              1.75);
  notes.event(R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}})", 1.8);
  notes.event("[DONE]", 1.8);
  notes.finish(true);
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.token_ids, (std::vector<int32_t>{7, 8, 9}));
  EXPECT_EQ(result.first_token, 1.0);
  EXPECT_EQ(result.last_token, 1.75);
  EXPECT_EQ(result.gaps, (std::vector<float>{0.25f, 0.5f}));
  EXPECT_EQ(result.prompt_tokens, 5);
  EXPECT_EQ(result.output_tokens, 4);
}

TEST(AnswerNotes, WhatIsMissingIsTheFailure) {
  const auto failure = [](const std::vector<std::string>& events) {
    LoadResult result;
    AnswerNotes notes(result, false);
    for (const std::string& event : events) notes.event(event, 1);
    notes.finish(true);
    return result.failure;
  };
  const std::string end = R"({"choices":[{"text":"a","finish_reason":"stop"}]})";
  EXPECT_EQ(failure({end, "[DONE]"}), "");
  EXPECT_EQ(failure({end}), "the stream ended without [DONE]");
  EXPECT_EQ(failure({R"({"choices":[{"text":"a"}]})", "[DONE]"}),
            "the answer ended without a finish_reason");
  EXPECT_EQ(failure({R"({"error":{"message":"no memory"}})", "[DONE]"}),
            "in the stream: no memory");
  EXPECT_EQ(failure({end, "[DONE]", end}), "an event after [DONE]");
  EXPECT_EQ(failure({"{", "[DONE]"}), "an event that is no JSON object");
}

TEST(AnswerNotes, AWholeAnswer) {
  LoadResult result;
  AnswerNotes notes(result, true);
  notes.whole(R"({"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],
                  "usage":{"prompt_tokens":2,"completion_tokens":3}})",
              2);
  notes.finish(false);
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.text, "x");
  EXPECT_EQ(result.output_tokens, 3);
  LoadResult broken;
  AnswerNotes(broken, true).whole("{}", 2);
  EXPECT_NE(broken.failure, "");
}

TEST(Distribution, OfAKnownList) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Distribution d = distribution(values);
  EXPECT_DOUBLE_EQ(d.mean, 50);
  EXPECT_DOUBLE_EQ(d.p50, 50);
  EXPECT_DOUBLE_EQ(d.p90, 90);
  EXPECT_DOUBLE_EQ(d.p99, 99);
  EXPECT_DOUBLE_EQ(d.max, 100);
  EXPECT_NEAR(d.std, std::sqrt(850.0), 1e-9);  // of 0..n: n (n + 2) / 12
  EXPECT_DOUBLE_EQ(distribution({1, 2}).p50, 1.5);
  EXPECT_DOUBLE_EQ(distribution({}).p99, 0);
}

TEST(LoadReport, CountsAndTimes) {
  LoadRun run;
  run.seconds = 10;
  LoadResult good;
  good.status = 200;
  good.start = 1;
  good.first_token = 1.1;
  good.last_token = 1.5;
  good.end = 1.6;
  good.prompt_tokens = 3;
  good.output_tokens = 5;
  good.gaps = {0.1f, 0.1f, 0.2f};
  LoadResult slow = good;
  slow.end = 5;
  LoadResult refused;
  refused.status = 429;
  refused.failure = "HTTP 429: full";
  refused.retry_after = 4;
  LoadResult lost;
  lost.failure = "connect: refused";
  run.results = {good, slow, refused, refused, lost};
  const Goodput goodput = parse_goodput({"ttft:200", "e2el:1000"});
  const LoadReport r = make_report(run, goodput);
  EXPECT_EQ(r.completed, 2);
  EXPECT_EQ(r.failed, 3);
  EXPECT_EQ(r.refused, 2);
  EXPECT_EQ(r.good, 1);
  EXPECT_EQ(r.output_tokens, 10);
  EXPECT_NEAR(r.ttft.mean, 100, 1e-6);
  EXPECT_NEAR(r.tpot.mean, 100, 1e-6);
  EXPECT_NEAR(r.itl.max, 200, 1e-3);
  EXPECT_NEAR(r.e2el.max, 4000, 1e-6);
  EXPECT_EQ(r.retry_after.p50, 4);
  EXPECT_EQ(r.statuses.at(200), 2);
  EXPECT_EQ(r.statuses.at(0), 1);
  EXPECT_EQ(r.failures.at("HTTP 429: full"), 2);
  const auto json = report_json(r, goodput);
  EXPECT_EQ(json.at("output_throughput"), 1.0);
  EXPECT_EQ(json.at("request_goodput"), 0.1);
  EXPECT_NE(report_text(r, goodput).find("2  HTTP 429: full"), std::string::npos);
  EXPECT_THROW(parse_goodput({"ttft"}), std::runtime_error);
  EXPECT_THROW(parse_goodput({"itl:3"}), std::runtime_error);
  EXPECT_THROW(parse_goodput({"ttft:-3"}), std::runtime_error);
}

TEST(LoadReport, AnswersThatDiffer) {
  LoadRun run;
  run.results.resize(3);
  run.results[0].text = "abc";
  run.results[1].text = "acb";
  run.results[1].request = 1;
  run.results[2].text = "abc";
  run.results[2].token_ids = {1, 3};
  run.results[2].request = 2;
  const std::vector<LoadRequest> requests{{"a", "", ""}, {"b", "", ""}, {"c", "", ""}};
  LoadReport report;
  compare_answers(run, requests,
                  {{"a", {"abc", {}}}, {"b", {"abc", {}}}, {"c", {"abc", {1, 2, 3}}}}, report);
  EXPECT_EQ(report.compared, 3);
  EXPECT_EQ(report.different, 2);
  EXPECT_EQ(report.differences[0],
            "request b: 3 bytes of text, expected 3; they differ from byte 1 on");
  EXPECT_EQ(report.differences[1], "request c: 2 tokens, expected 3; they differ from token 1 on");
}

}  // namespace
}  // namespace zipage::cli
