// Turns a KV trace into rows: which part of each sequence survives, and with what scores.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "zipage/kv_trace.h"

namespace zipage::cli {

enum class TraceRows { kRequest, kCompression, kLayer, kHead };  // --by

// Survivors of one or more heads, counted by where they lie.
struct KeptParts {
  static constexpr int32_t kSinkTokens = 4, kNewestTokens = 64;
  static constexpr size_t kNumRegions = 4, kNumTenths = 10;
  struct Share {
    int64_t kept = 0, tokens = 0;
    double value() const {  // 0 of an empty part: see tokens
      return tokens > 0 ? static_cast<double>(kept) / static_cast<double>(tokens) : 0;
    }
  };
  // Sinks: the first 4 tokens; newest: the last 64 of the rest; prompt and middle (the output)
  // between them.
  std::array<Share, kNumRegions> regions;                    // sinks, prompt, middle, newest
  std::array<Share, kNumTenths> tenths;                      // of the sequence, oldest first
  int64_t num_heads = 0, num_protected = 0, num_scores = 0;  // scores: of entries not protected
  double score_sum = 0, score_min = 0;

  // `positions` and `scores`: [keep] of one head of the record.
  void add(const KvTraceRecord& record, const int32_t* positions, const float* scores);
};

class TraceTable {
 public:
  // Filters: empty and 0 take all. `request`: a request's number or its external id.
  TraceTable(TraceRows rows, std::string request, int64_t compression)
      : by_(rows), request_(std::move(request)), compression_(compression) {}
  void add(const KvTraceRecord& record);

  bool empty() const { return rows_.empty(); }
  std::string summary() const;  // one line: how much the trace holds
  std::string text() const;
  boost::json::array json() const;

 private:
  struct Row {
    std::string request;
    int64_t compression = 0;  // from 1; 0: several
    int32_t layer = -1, head = -1;
    KvPolicy policy = KvPolicy::kPeak;
    int32_t tokens = 0, length = 0, keep = 0;
    KeptParts parts;
  };
  // Sequence, compression, layer, head: 0 where the rows do not tell them apart.
  using Key = std::array<uint64_t, 4>;
  // Compressions of a sequence by job: their numbers, from 1.
  using Jobs = std::map<uint64_t, int64_t>;

  const TraceRows by_;
  const std::string request_;
  const int64_t compression_;
  std::map<uint64_t, Jobs> sequences_;
  std::map<uint64_t, bool> requests_, policies_;
  int32_t num_layers_ = 0, num_heads_ = 0;
  std::map<Key, Row> rows_;
};

}  // namespace zipage::cli
