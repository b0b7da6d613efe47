#include "cli/trace_table.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "cli/console.h"

namespace zipage::cli {
namespace {

constexpr const char* kRegions[] = {"sinks", "prompt", "middle", "newest"};

std::string percent(const KeptParts::Share& share) {
  return share.tokens > 0 ? fmt::format("{:.0f}", 100 * share.value()) : "-";
}

std::string request_name(const KvTraceRecord& r) {
  const std::string name = r.external_id.empty() ? std::to_string(r.request_id) : r.external_id;
  return r.index > 0 ? fmt::format("{}.{}", name, r.index) : name;
}

}  // namespace

void KeptParts::add(const KvTraceRecord& r, const int32_t* positions, const float* scores) {
  const int32_t sinks = std::min(kSinkTokens, r.tokens);
  const int32_t newest = std::max(sinks, r.tokens - kNewestTokens);
  const int32_t prompt = std::clamp(r.prompt_length, sinks, newest);
  const int32_t ends[] = {sinks, prompt, newest, r.tokens};
  for (size_t i = 0; i < kNumRegions; ++i) regions[i].tokens += ends[i] - (i > 0 ? ends[i - 1] : 0);
  const auto tenth_end = [&](size_t i) {
    return static_cast<int64_t>(i) * r.tokens / static_cast<int64_t>(kNumTenths);
  };
  for (size_t i = 0; i < kNumTenths; ++i) tenths[i].tokens += tenth_end(i + 1) - tenth_end(i);
  ++num_heads;
  size_t region = 0, tenth = 0;
  for (int32_t i = 0; i < r.keep; ++i) {
    while (region + 1 < kNumRegions && positions[i] >= ends[region]) ++region;
    while (tenth + 1 < kNumTenths && positions[i] >= tenth_end(tenth + 1)) ++tenth;
    ++regions[region].kept;
    ++tenths[tenth].kept;
    if (!std::isfinite(scores[i])) {
      ++num_protected;
      continue;
    }
    const double score = scores[i];
    score_min = num_scores == 0 ? score : std::min(score_min, score);
    score_sum += score;
    ++num_scores;
  }
}

void TraceTable::add(const KvTraceRecord& r) {
  Jobs& jobs = sequences_[r.sequence];
  const int64_t number =
      jobs.emplace(r.job_id, static_cast<int64_t>(jobs.size()) + 1).first->second;
  requests_[r.request_id] = policies_[static_cast<uint64_t>(r.policy)] = true;
  num_layers_ = std::max(num_layers_, r.layer + 1);
  num_heads_ = std::max(num_heads_, r.num_heads);
  if (!request_.empty() && request_ != r.external_id && request_ != std::to_string(r.request_id) &&
      request_ != request_name(r))
    return;
  if (compression_ > 0 && compression_ != number) return;
  const bool of_sequence = by_ == TraceRows::kRequest || by_ == TraceRows::kCompression;
  for (int32_t head = 0; head < r.num_heads; ++head) {
    Key key{};
    if (of_sequence) key[0] = r.sequence;
    if (by_ == TraceRows::kCompression) key[1] = static_cast<uint64_t>(number);
    if (!of_sequence) key[2] = static_cast<uint64_t>(r.layer);
    if (by_ == TraceRows::kHead) key[3] = static_cast<uint64_t>(head);
    Row& row = rows_[key];
    if (of_sequence) row.request = request_name(r);
    row.compression = static_cast<int64_t>(key[1]);
    if (!of_sequence) row.layer = r.layer;
    if (by_ == TraceRows::kHead) row.head = head;
    row.policy = r.policy;
    row.tokens = std::max(row.tokens, r.tokens);
    row.length = std::max(row.length, r.length);
    row.keep = r.keep;
    const size_t begin = static_cast<size_t>(head) * static_cast<size_t>(r.keep);
    row.parts.add(r, r.positions.data() + begin, r.scores.data() + begin);
  }
}

std::string TraceTable::summary() const {
  size_t compressions = 0;
  for (const auto& [sequence, jobs] : sequences_) compressions += jobs.size();
  std::string policies;
  for (const auto& [policy, used] : policies_) {
    policies += (policies.empty() ? "" : ", ") + std::string(to_string(KvPolicy(policy)));
  }
  return fmt::format("{} compression{} of {} request{}, {} layers x {} KV heads, policy {}",
                     compressions, compressions == 1 ? "" : "s", requests_.size(),
                     requests_.size() == 1 ? "" : "s", num_layers_, num_heads_,
                     policies.empty() ? "-" : policies);
}

std::string TraceTable::text() const {
  std::vector<std::string> header;
  if (by_ == TraceRows::kRequest || by_ == TraceRows::kCompression) header = {"request"};
  if (by_ == TraceRows::kCompression) header.push_back("compression");
  if (by_ == TraceRows::kRequest || by_ == TraceRows::kCompression) {
    header.insert(header.end(), {"policy", "tokens", "entries", "kept"});
  } else {
    header.push_back("layer");
    if (by_ == TraceRows::kHead) header.push_back("head");
  }
  header.insert(header.end(), std::begin(kRegions), std::end(kRegions));
  for (size_t i = 1; i <= KeptParts::kNumTenths; ++i) header.push_back(fmt::format("{}%", 10 * i));
  header.insert(header.end(), {"protected", "mean", "min"});
  std::vector<std::vector<std::string>> table = {header};
  for (const auto& [key, row] : rows_) {
    std::vector<std::string>& cells = table.emplace_back();
    if (!row.request.empty()) cells.push_back(row.request);
    if (row.compression > 0) cells.push_back(std::to_string(row.compression));
    if (row.layer < 0) {
      cells.insert(cells.end(), {to_string(row.policy), std::to_string(row.tokens),
                                 std::to_string(row.length), std::to_string(row.keep)});
    } else {
      cells.push_back(std::to_string(row.layer));
      if (row.head >= 0) cells.push_back(std::to_string(row.head));
    }
    const KeptParts& p = row.parts;
    for (const auto& region : p.regions) cells.push_back(percent(region));
    for (const auto& tenth : p.tenths) cells.push_back(percent(tenth));
    cells.push_back(percent({p.num_protected, p.num_protected + p.num_scores}));
    const auto count = static_cast<double>(p.num_scores);
    cells.push_back(p.num_scores > 0 ? fmt::format("{:.2e}", p.score_sum / count) : "-");
    cells.push_back(p.num_scores > 0 ? fmt::format("{:.2e}", p.score_min) : "-");
  }
  return format_table(table);
}

boost::json::array TraceTable::json() const {
  boost::json::array list;
  for (const auto& [key, row] : rows_) {
    boost::json::object& out = list.emplace_back(boost::json::object()).as_object();
    if (row.layer < 0) {
      out["request"] = row.request;
      if (row.compression > 0) out["compression"] = row.compression;
      out["policy"] = to_string(row.policy);
      out["tokens"] = row.tokens;
      out["entries"] = row.length;
      out["kept"] = row.keep;
    } else {
      out["layer"] = row.layer;
      if (row.head >= 0) out["head"] = row.head;
    }
    const KeptParts& p = row.parts;
    boost::json::object& shares = out["share_kept"].emplace_object();
    for (size_t i = 0; i < KeptParts::kNumRegions; ++i) {
      if (p.regions[i].tokens > 0) shares[kRegions[i]] = p.regions[i].value();
    }
    boost::json::array& tenths = out["share_kept_by_tenth"].emplace_array();
    for (const auto& tenth : p.tenths) tenths.push_back(tenth.value());
    out["protected"] = p.num_protected;
    out["scores"] = p.num_scores;
    if (p.num_scores > 0) {
      out["mean_score"] = p.score_sum / static_cast<double>(p.num_scores);
      out["min_score"] = p.score_min;
    }
  }
  return list;
}

}  // namespace zipage::cli
