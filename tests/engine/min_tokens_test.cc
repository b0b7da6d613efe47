// min_tokens holds back every kind of end: what a sequence writes before it is neither cut nor
// billed without being shown.
#include "engine/engine_fixture.h"

namespace zipage::testing_engine {
namespace {

// The reasoner writes one character a token here, and begins with digits, '*' and '='.
constexpr const char* kPrompt =
    "<|im_start|>user\nmul 12*34<|im_end|>\n<|im_start|>assistant\n<think>\n";

class MinTokensTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = make_engine(exact_options()).release(); }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }

  Answer run(const std::function<void(SamplingParams&)>& change) {
    Request request = greedy_request(*engine_, kPrompt, 40);
    change(request.sampling);
    Answer result;
    pieces_.clear();
    auto id = engine_->submit(std::move(request), [&](const RequestOutput& output) {
      pieces_.push_back(output.new_text);
      collect_into(result)(output);
    });
    EXPECT_TRUE(id.ok());
    engine_->run_until_idle();
    return result;
  }

  std::string free_text() {
    return run([](SamplingParams&) {}).text;
  }

  std::vector<std::string> pieces_;
  static Engine* engine_;
};
Engine* MinTokensTest::engine_ = nullptr;

TEST_F(MinTokensTest, AStopStringBeforeThemIsText) {
  const std::string free = free_text();
  ASSERT_EQ(free.size(), 40u) << "one character a token: " << free;
  for (const size_t length : {size_t{1}, size_t{2}, size_t{4}}) {
    for (size_t at = 0; at + length < 30; at += 9) {
      const std::string stop = free.substr(at, length);
      for (const size_t least : {size_t{0}, at, at + 1, at + length, size_t{25}}) {
        for (const bool include : {false, true}) {
          const Answer got = run([&](SamplingParams& p) {
            p.stop = {stop};
            p.min_tokens = static_cast<int64_t>(least);
            p.include_stop_str_in_output = include;
          });
          // The first occurrence in the text that comes after the first `least` tokens.
          const size_t found = free.find(stop, least);
          const bool stopped = found != std::string::npos;
          const std::string want = stopped ? free.substr(0, found + (include ? length : 0)) : free;
          EXPECT_EQ(got.text, want) << "stop '" << stop << "', min_tokens " << least;
          EXPECT_EQ(got.finish, stopped ? FinishReason::kStop : FinishReason::kLength);
          EXPECT_EQ(got.stop_reason, stopped ? stop : "");
          EXPECT_EQ(got.tokens.size(), stopped ? found + length : free.size());
        }
      }
    }
  }
}

// A stream gets the text of these tokens at once: nothing of it can become a stop string.
TEST_F(MinTokensTest, NothingOfThemIsHeldBack) {
  const std::string free = free_text();
  const std::string stop = free.substr(2, 6) + "~";
  run([&](SamplingParams& p) {
    p.stop = {stop};
    p.min_tokens = 10;
  });
  ASSERT_GE(pieces_.size(), 10u);
  std::string text;
  for (size_t i = 0; i < 10; ++i) {
    text += pieces_[i];
    EXPECT_EQ(text, free.substr(0, i + 1));
  }
}

TEST_F(MinTokensTest, StopTokensAndTheEndWait) {
  const std::string free = free_text();
  for (const int64_t least : {1, 5, 20}) {
    const Answer got = run([&](SamplingParams& p) {
      p.stop_token_ids = {free[0]};
      p.min_tokens = least;
      p.max_tokens = 30;
    });
    EXPECT_GE(got.tokens.size(), static_cast<size_t>(least));
    for (int64_t i = 0; i < least; ++i) EXPECT_NE(got.tokens[static_cast<size_t>(i)], free[0]);
  }
  // The only other token that may be drawn is EOS, and it is held back.
  const Answer forced = run([&](SamplingParams& p) {
    p.allowed_token_ids = std::vector<int32_t>{'7', 258};
    p.logit_bias = {{258, 100.0f}};
    p.min_tokens = 6;
  });
  EXPECT_EQ(forced.text, "777777");
  EXPECT_EQ(forced.finish, FinishReason::kStop);
  EXPECT_EQ(forced.tokens.size(), 7u);
}

// A stop token that is shown is not searched for stop strings: it has ended the text already.
TEST_F(MinTokensTest, AShownStopTokenIsNotCut) {
  const std::string free = free_text();
  const Answer got = run([&](SamplingParams& p) {
    p.stop_token_ids = {free[3]};
    p.stop = {free.substr(2, 2)};
    p.include_stop_str_in_output = true;
  });
  const size_t end = free.find(free[3]);
  EXPECT_EQ(got.text, free.substr(0, end + 1));
  EXPECT_EQ(got.stop_reason, std::to_string(int{free[3]}));
}

TEST_F(MinTokensTest, BadWordsAreForbiddenAllTheWhile) {
  const std::string free = free_text();
  const std::string word = free.substr(0, 1);
  const Answer got = run([&](SamplingParams& p) {
    p.bad_words = {" " + word};  // leading white space is no part of it
    p.min_tokens = 20;
  });
  EXPECT_EQ(got.text.find(word), std::string::npos) << got.text;
  EXPECT_GE(got.tokens.size(), 20u);
}

}  // namespace
}  // namespace zipage::testing_engine
