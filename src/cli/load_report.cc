#include "cli/load_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "base/error.h"

namespace zipage::cli {
namespace {

// A few reasons differ in numbers only; no more than so many are told apart.
constexpr size_t kMostReasons = 50;

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

void add_distribution(const char* name, const Distribution& d, boost::json::object& out) {
  const auto add = [&](const char* what, double value) {
    out[fmt::format("{}_{}_ms", what, name)] = rounded(value);
  };
  add("mean", d.mean);
  add("median", d.p50);
  add("std", d.std);
  add("p50", d.p50);
  add("p90", d.p90);
  add("p95", d.p95);
  add("p99", d.p99);
  add("max", d.max);
}

// The first place where two lists differ.
template <typename List>
size_t first_difference(const List& a, const List& b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

Distribution distribution(std::vector<double> values) {
  Distribution d;
  if (values.empty()) return d;
  std::sort(values.begin(), values.end());
  for (const double value : values) d.mean += value;
  d.mean /= static_cast<double>(values.size());
  for (const double value : values) d.std += (value - d.mean) * (value - d.mean);
  d.std = std::sqrt(d.std / static_cast<double>(values.size()));
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<size_t>(place);
    const size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
  };
  d.p50 = at(0.5);
  d.p90 = at(0.9);
  d.p95 = at(0.95);
  d.p99 = at(0.99);
  d.max = values.back();
  return d;
}

Goodput parse_goodput(const std::vector<std::string>& words) {
  Goodput goodput;
  for (const std::string& word : words) {
    const size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    std::optional<double>* slot = name == "ttft"   ? &goodput.ttft
                                  : name == "tpot" ? &goodput.tpot
                                  : name == "e2el" ? &goodput.e2el
                                                   : nullptr;
    double ms = 0;
    const char* end = word.data() + word.size();
    const bool number = colon != std::string::npos &&
                        std::from_chars(word.data() + colon + 1, end, ms).ptr == end && ms > 0;
    if (slot == nullptr || !number)
      fail_invalid("--goodput {}: expected ttft:MS, tpot:MS or e2el:MS", word);
    *slot = ms;
  }
  return goodput;
}

LoadReport make_report(const LoadRun& run, const Goodput& goodput) {
  LoadReport r;
  r.seconds = run.seconds;
  r.cpu_seconds = run.cpu_seconds;
  r.peak_in_flight = run.peak_in_flight;
  r.slow_readers_dropped = run.slow_readers_dropped;
  r.interrupted = run.interrupted;
  std::vector<double> ttft, tpot, itl, e2el, retry_after;
  for (const LoadResult& result : run.results) {
    ++r.statuses[result.status];
    if (!result.failure.empty()) {
      ++r.failed;
      const bool known = r.failures.count(result.failure) > 0;
      ++r.failures[known || r.failures.size() < kMostReasons ? result.failure : "others"];
      if (result.status != 429 && result.status != 503) continue;
      ++r.refused;
      if (result.retry_after < 0) {
        ++r.refused_without_retry_after;
      } else {
        retry_after.push_back(result.retry_after);
      }
      continue;
    }
    ++r.completed;
    r.prompt_tokens += result.prompt_tokens;
    r.output_tokens += result.output_tokens;
    const double total = 1e3 * (result.end - result.start);
    e2el.push_back(total);
    const bool any = result.first_token >= 0;
    const double first = any ? 1e3 * (result.first_token - result.start) : total;
    if (any) ttft.push_back(first);
    double each = 0;
    if (any && result.output_tokens > 1) {
      each = 1e3 * (result.last_token - result.first_token) /
             static_cast<double>(result.output_tokens - 1);
      tpot.push_back(each);
    }
    for (const float gap : result.gaps) itl.push_back(1e3 * static_cast<double>(gap));
    if (first <= goodput.ttft.value_or(first) && each <= goodput.tpot.value_or(each) &&
        total <= goodput.e2el.value_or(total))
      ++r.good;
  }
  r.ttft = distribution(std::move(ttft));
  r.tpot = distribution(std::move(tpot));
  r.itl = distribution(std::move(itl));
  r.e2el = distribution(std::move(e2el));
  r.retry_after = distribution(std::move(retry_after));
  return r;
}

void compare_answers(const LoadRun& run,
                     const std::vector<LoadRequest>& requests,
                     const std::unordered_map<std::string, ExpectedAnswer>& expected,
                     LoadReport& report) {
  for (const LoadResult& result : run.results) {
    if (!result.failure.empty()) continue;
    const std::string& id = requests[result.request].id;
    const auto found = expected.find(id);
    if (found == expected.end()) fail_invalid("--expect: no answer for request '{}'", id);
    const ExpectedAnswer& answer = found->second;
    ++report.compared;
    std::string what;
    if (!answer.token_ids.empty() && answer.token_ids != result.token_ids) {
      what = fmt::format("{} tokens, expected {}; they differ from token {} on",
                         result.token_ids.size(), answer.token_ids.size(),
                         first_difference(result.token_ids, answer.token_ids));
    } else if (answer.text != result.text) {
      what = fmt::format("{} bytes of text, expected {}; they differ from byte {} on",
                         result.text.size(), answer.text.size(),
                         first_difference(result.text, answer.text));
    }
    if (what.empty()) continue;
    ++report.different;
    if (report.differences.size() < 5) report.differences.push_back("request " + id + ": " + what);
  }
}

boost::json::object report_json(const LoadReport& r, const Goodput& goodput) {
  boost::json::object out{{"duration", rounded(r.seconds)},
                          {"completed", r.completed},
                          {"failed", r.failed},
                          {"total_input_tokens", r.prompt_tokens},
                          {"total_output_tokens", r.output_tokens}};
  out["request_throughput"] = rounded(per_second(static_cast<double>(r.completed), r.seconds));
  out["output_throughput"] = rounded(per_second(static_cast<double>(r.output_tokens), r.seconds));
  out["total_token_throughput"] =
      rounded(per_second(static_cast<double>(r.output_tokens + r.prompt_tokens), r.seconds));
  if (goodput.wanted()) {
    out["good"] = r.good;
    out["request_goodput"] = rounded(per_second(static_cast<double>(r.good), r.seconds));
  }
  out["max_concurrent_requests"] = r.peak_in_flight;
  out["generator_cpu_seconds"] = rounded(r.cpu_seconds);
  add_distribution("ttft", r.ttft, out);
  add_distribution("tpot", r.tpot, out);
  add_distribution("itl", r.itl, out);
  add_distribution("e2el", r.e2el, out);
  boost::json::object statuses, failures;
  for (const auto& [status, count] : r.statuses) statuses[std::to_string(status)] = count;
  for (const auto& [reason, count] : r.failures) failures[reason] = count;
  out["http_statuses"] = std::move(statuses);
  out["failures"] = std::move(failures);
  out["refused"] = r.refused;
  out["refused_without_retry_after"] = r.refused_without_retry_after;
  out["median_retry_after_s"] = rounded(r.retry_after.p50);
  out["max_retry_after_s"] = rounded(r.retry_after.max);
  out["compared"] = r.compared;
  out["different"] = r.different;
  out["slow_readers_dropped"] = r.slow_readers_dropped;
  out["partial"] = r.interrupted;
  return out;
}

std::string report_text(const LoadReport& r, const Goodput& goodput) {
  constexpr int kWidth = 56;
  std::string text = fmt::format("{:=^{}}\n", " Serving benchmark ", kWidth);
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{:<40}{:>16}\n", name + ":", value);
  };
  const auto count = [&](const std::string& name, int64_t value) {
    line(name, std::to_string(value));
  };
  const auto number = [&](const std::string& name, double value) {
    line(name, fmt::format("{:.2f}", value));
  };
  count("Answered requests", r.completed);
  count("Failed requests", r.failed);
  count("Most requests in flight", r.peak_in_flight);
  number("Duration (s)", r.seconds);
  number("CPU time of this generator (s)", r.cpu_seconds);
  count("Prompt tokens", r.prompt_tokens);
  count("Output tokens", r.output_tokens);
  number("Requests a second", per_second(static_cast<double>(r.completed), r.seconds));
  if (goodput.wanted())
    number("Good requests a second", per_second(static_cast<double>(r.good), r.seconds));
  number("Output tokens a second", per_second(static_cast<double>(r.output_tokens), r.seconds));
  number("Tokens a second",
         per_second(static_cast<double>(r.output_tokens + r.prompt_tokens), r.seconds));
  const struct {
    const char *title, *name;
    const Distribution& d;
  } all[] = {{"Time to first token", "TTFT", r.ttft},
             {"Time per output token, without the first", "TPOT", r.tpot},
             {"Between two chunks of a stream", "ITL", r.itl},
             {"Request to whole answer", "E2E", r.e2el}};
  for (const auto& [title, name, d] : all) {
    text += fmt::format("{:-^{}}\n", fmt::format(" {} ", title), kWidth);
    number(fmt::format("Mean {} (ms)", name), d.mean);
    number(fmt::format("Median {} (ms)", name), d.p50);
    number(fmt::format("P90 {} (ms)", name), d.p90);
    number(fmt::format("P95 {} (ms)", name), d.p95);
    number(fmt::format("P99 {} (ms)", name), d.p99);
  }
  if (r.compared > 0) {
    text += fmt::format("{:-^{}}\n", " Against --expect ", kWidth);
    count("Answers compared", r.compared);
    count("Answers that differ", r.different);
    for (const std::string& difference : r.differences) text += "  " + difference + "\n";
  }
  if (!r.failures.empty()) text += fmt::format("{:-^{}}\n", " Failures ", kWidth);
  for (const auto& [reason, times] : r.failures) text += fmt::format("{:>8}  {}\n", times, reason);
  text += std::string(kWidth, '=') + "\n";
  if (r.interrupted) text += "interrupted: the numbers are partial\n";
  return text;
}

}  // namespace zipage::cli
