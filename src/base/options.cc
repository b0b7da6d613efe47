#include "zipage/options.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/kv_policy_names.h"

namespace zipage {
namespace {

template <typename Enum>
struct Word {
  Enum value;
  const char* text;
};

constexpr Word<ScoreReduce> kScoreReduces[] = {{ScoreReduce::kMax, "max"},
                                               {ScoreReduce::kSum, "sum"}};
constexpr Word<Pooling> kPoolings[] = {
    {Pooling::kFirst, "first"}, {Pooling::kNever, "never"}, {Pooling::kAlways, "always"}};
constexpr Word<Redundancy> kRedundancies[] = {{Redundancy::kLightning, "lightning"},
                                              {Redundancy::kFlash, "flash"},
                                              {Redundancy::kRaw, "raw"}};
constexpr Word<Combine> kCombines[] = {{Combine::kConvex, "convex"},
                                       {Combine::kSubtract, "subtract"}};
constexpr Word<Scheduling> kSchedulings[] = {{Scheduling::kHybrid, "hybrid"},
                                             {Scheduling::kConstrained, "constrained"}};
constexpr Word<SchedulingPolicy> kSchedulingPolicies[] = {
    {SchedulingPolicy::kFcfs, "fcfs"}, {SchedulingPolicy::kPriority, "priority"}};

template <typename Enum, size_t n>
const char* text_of(const Word<Enum> (&words)[n], Enum value) {
  for (const auto& word : words) {
    if (word.value == value) return word.text;
  }
  return "unknown";
}

Status unknown_word(const std::string& text, std::string_view accepted) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("'{}' is unknown; expected {}", text, accepted));
}

template <typename Enum, size_t n>
Result<Enum> parse(const Word<Enum> (&words)[n], const std::string& text) {
  std::string accepted;
  for (size_t i = 0; i < n; ++i) {
    if (text == words[i].text) return words[i].value;
    if (i > 0) accepted += i + 1 < n ? ", " : " or ";
    accepted += words[i].text;
  }
  return unknown_word(text, accepted);
}

// Chains checks and keeps the first that fails.
class Checks {
 public:
  template <typename... Args>
  Checks& require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition && status_.ok()) {
      status_ =
          Status(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
    }
    return *this;
  }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

bool in_range(double value, double low, double high) {  // false for NaN
  return value >= low && value <= high;
}

void check_scores(const CompressionOptions& o, Checks& checks) {
  checks
      .require(in_range(*o.score_weight, 0, 1), "--score-weight {} is not within 0 and 1",
               *o.score_weight)
      .require(in_range(o.score_decay, 0, 1), "--score-decay {} is not within 0 and 1",
               o.score_decay)
      .require(o.pooling_width >= 1 && o.pooling_width % 2 == 1,
               "--pooling-width {} is not an odd number of 1 or more", o.pooling_width)
      .require(o.redundancy_temperature > 0 && std::isfinite(o.redundancy_temperature),
               "--redundancy-temperature {} is not a number above 0", o.redundancy_temperature)
      .require(in_range(o.similarity_threshold, -1, 1),
               "--similarity-threshold {} is not within -1 and 1, as cosines are",
               o.similarity_threshold)
      .require(o.attention_half_life >= 1, "--attention-half-life {} is below 1 token",
               o.attention_half_life)
      .require(o.sink_tokens >= 0, "--sink-tokens {} is negative", o.sink_tokens)
      .require(*o.protect_newest >= 0, "--protect-newest {} is negative", *o.protect_newest)
      .require(o.layer_stride >= 1, "--layer-stride {} is below 1", o.layer_stride);
}

void check_budget(const CompressionOptions& o, int32_t block_size, Checks& checks) {
  const int64_t below = o.kv_budget / block_size * block_size;
  checks.require(o.kv_budget > 0, "--kv-budget {} is negative; give tokens, or full", o.kv_budget)
      .require(below == o.kv_budget,
               "--kv-budget {} is not a multiple of --block-size {}; the nearest are {} and {}",
               o.kv_budget, block_size, std::max<int64_t>(below, block_size), below + block_size)
      .require(o.kv_budget < (int64_t{1} << 30), "--kv-budget {} is too large; use full",
               o.kv_budget);
  // method.md 3.1.6: the newest max(w, protect_newest) and the sinks are always kept.
  const int64_t newest = std::max(o.window_size, *o.protect_newest);
  checks.require(o.kv_budget > newest + o.sink_tokens,
                 "--kv-budget {} is not larger than what is protected: {} newest entries (the "
                 "larger of --window-size {} and --protect-newest {}) and {} --sink-tokens",
                 o.kv_budget, newest, o.window_size, *o.protect_newest, o.sink_tokens);
}

}  // namespace

const char* to_string(KvPolicy value) { return traits_of(value).name; }
const char* to_string(ScoreReduce value) { return text_of(kScoreReduces, value); }
const char* to_string(Pooling value) { return text_of(kPoolings, value); }
const char* to_string(Redundancy value) { return text_of(kRedundancies, value); }
const char* to_string(Combine value) { return text_of(kCombines, value); }
const char* to_string(Scheduling value) { return text_of(kSchedulings, value); }
const char* to_string(SchedulingPolicy value) { return text_of(kSchedulingPolicies, value); }

Result<KvPolicy> parse_kv_policy(const std::string& text) {
  for (const KvPolicyTraits& policy : kKvPolicies) {
    if (text == policy.name) return policy.policy;
  }
  return unknown_word(text, kv_policy_names());
}
Result<ScoreReduce> parse_score_reduce(const std::string& text) {
  return parse(kScoreReduces, text);
}
Result<Pooling> parse_pooling(const std::string& text) { return parse(kPoolings, text); }
Result<Redundancy> parse_redundancy(const std::string& text) { return parse(kRedundancies, text); }
Result<Combine> parse_combine(const std::string& text) { return parse(kCombines, text); }
Result<Scheduling> parse_scheduling(const std::string& text) { return parse(kSchedulings, text); }
Result<SchedulingPolicy> parse_scheduling_policy(const std::string& text) {
  return parse(kSchedulingPolicies, text);
}

CompressionOptions CompressionOptions::for_policy(KvPolicy policy) const {
  const KvPolicyTraits& traits = traits_of(policy);
  CompressionOptions o = *this;
  o.kv_policy = policy;
  if (!o.score_weight) o.score_weight = traits.score_weight;
  if (!o.protect_newest) o.protect_newest = traits.protect_newest;
  if (o.sink_tokens == 0) o.sink_tokens = traits.sink_tokens;
  return o;
}

Result<CompressionOptions> CompressionOptions::resolved(int32_t block_size) const {
  const CompressionOptions o = for_policy(kv_policy);
  Checks checks;
  checks.require(block_size >= 1, "--block-size {} is below 1", block_size)
      .require(o.window_size >= 1, "--window-size {} is below 1", o.window_size);
  if (!checks.status().ok()) return checks.status();
  checks.require(block_size % o.window_size == 0,
                 "--block-size {} is not a multiple of --window-size {}", block_size,
                 o.window_size);
  check_scores(o, checks);
  if (o.capped()) check_budget(o, block_size, checks);
  if (!checks.status().ok()) return checks.status();
  return o;
}

}  // namespace zipage
