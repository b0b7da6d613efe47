// The eviction policies: which entries of a request's KV cache survive a compression
// (docs/method.md 3).
//
// A policy is defined in two places. Here: its enumerator and its row of traits, from which flags,
// defaults, memory plan, scheduler, help texts and plots take what they need. In
// src/compress/policies.cc: its function, a few calls of ops. docs/howto/add-a-policy.md walks
// through both.
//
//   for (const KvPolicyTraits& policy : kKvPolicies) std::puts(policy.name);
//   if (traits_of(options.kv_policy).needs_f) ...
//
// Constants only: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace zipage {

// Trace files store the value (docs/kv-trace.md): a new policy goes to the end.
enum class KvPolicy { kPeak, kPaper, kAttention, kRedundancy, kGlobal, kRecency, kRandom };

// How `zipage eval --plot` marks a policy's points.
enum class PlotMarker { kCircle, kSquare, kTriangle, kDiamond, kTriangleDown, kBar };

// What the rest of the engine has to know of a policy. A row names what differs from these
// defaults.
struct KvPolicyTraits {
  KvPolicy policy = KvPolicy::kPeak;
  // The word of --kv-policy, of a request's kv_policy and of reports.
  const char* name = "";
  // For help texts and docs/policies.md.
  const char* summary = "";

  // What the policy reads, and therefore what a compression slot holds for it.
  // The ring of the last w query vectors.
  bool needs_queries = false;
  // F: a score of each entry that outlives a compression.
  bool needs_f = false;
  // F also follows attention between compressions, from length L0 on (method.md 3.2).
  bool updates_f = false;
  // The entries' true positions, whatever the options say. Options that read positions too
  // (--derotate, --sink-tokens, --protect-prompt) need no trait.
  bool reads_positions = false;
  // Compares keys with each other: --derotate and --score-weight have a meaning.
  bool has_redundancy = false;

  // Defaults of options that the user leaves open (CompressionOptions::resolved).
  double score_weight = 0.2;
  int32_t protect_newest = 0;
  int32_t sink_tokens = 0;

  // In plots: colours that the colour-blind tell apart (Okabe and Ito).
  const char* plot_color = "#222222";
  PlotMarker plot_marker = PlotMarker::kCircle;
};

// One row a policy, in the order of the enumerators.
inline constexpr KvPolicyTraits kKvPolicies[] = {
    {.policy = KvPolicy::kPeak,
     .name = "peak",
     .summary = "peak attention F, and distance from the centre of all keys (ours, the default)",
     .needs_queries = true,
     .needs_f = true,
     .updates_f = true,
     .reads_positions = true,
     .has_redundancy = true,
     .score_weight = 0.3,
     .protect_newest = 64,
     .plot_color = "#0072b2",
     .plot_marker = PlotMarker::kCircle},
    {.policy = KvPolicy::kPaper,
     .name = "paper",
     .summary = "attention of the last window, its history F, and redundancy (as published)",
     .needs_queries = true,
     .needs_f = true,
     .has_redundancy = true,
     .plot_color = "#d55e00",
     .plot_marker = PlotMarker::kSquare},
    {.policy = KvPolicy::kAttention,
     .name = "attention",
     .summary = "attention of the last window alone (SnapKV, MorphKV)",
     .needs_queries = true,
     .plot_color = "#009e73",
     .plot_marker = PlotMarker::kTriangle},
    {.policy = KvPolicy::kRedundancy,
     .name = "redundancy",
     .summary = "attention of the last window, and redundancy (R-KV)",
     .needs_queries = true,
     .has_redundancy = true,
     .plot_color = "#cc79a7",
     .plot_marker = PlotMarker::kDiamond},
    {.policy = KvPolicy::kGlobal,
     .name = "global",
     .summary = "attention of the last window and its history F (G-KV)",
     .needs_queries = true,
     .needs_f = true,
     .plot_color = "#b8860b",
     .plot_marker = PlotMarker::kTriangleDown},
    {.policy = KvPolicy::kRecency,
     .name = "recency",
     .summary = "the first entries (attention sinks) and the newest (StreamingLLM)",
     .sink_tokens = 4,
     .plot_color = "#56b4e9",
     .plot_marker = PlotMarker::kBar},
    {.policy = KvPolicy::kRandom,
     .name = "random",
     .summary = "entries drawn at random for each head (--random-seed): what any policy must beat",
     .reads_positions = true,
     .plot_color = "#999999",
     .plot_marker = PlotMarker::kSquare},
};
inline constexpr size_t kNumKvPolicies = std::size(kKvPolicies);

constexpr const KvPolicyTraits& traits_of(KvPolicy policy) {
  return kKvPolicies[static_cast<size_t>(policy)];
}

constexpr bool kv_policies_are_in_order() {
  for (size_t i = 0; i < kNumKvPolicies; ++i) {
    if (static_cast<size_t>(kKvPolicies[i].policy) != i) return false;
  }
  return true;
}
static_assert(kv_policies_are_in_order(), "kKvPolicies has a row for each enumerator, in order");

}  // namespace zipage
