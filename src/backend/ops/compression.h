// Contracts of the ops of compression (method.md 3). All arithmetic in f32; sums in a fixed order
// (per block, blocks ascending). Each op works on layers [layer_begin, layer_begin + num_layers) of
// a batch of jobs. Score scratch is [num_jobs, num_layers, num_kv_heads, capacity] f32, capacity >=
// every job's length; entries from a job's length on are undefined. Device memory, except where it
// says host.
#pragma once

#include <cstdint>

#include "zipage/options.h"

#include "backend/kv_view.h"

namespace zipage {

// A batch of compressions as the ops see it.
struct CompressionBatch {
  int32_t num_jobs = 0;
  // Host knowledge: longest job.
  int32_t max_length = 0;
  // Host knowledge: largest keep.
  int32_t max_keep = 0;
  // [J] compression slot: queries, F, positions.
  const int32_t* slots = nullptr;
  // [J] n: KV entries, all stored.
  const int32_t* lengths = nullptr;
  // [J] k: entries to keep, <= n.
  const int32_t* keeps = nullptr;
  // [J] leading entries kept by the last compression: they carry F and a position in kv; 0 at the
  // first compression.
  const int32_t* histories = nullptr;
  // [J] entries >= history have position = slot index + offset.
  const int32_t* position_offsets = nullptr;
  // [J] tokens.
  const int32_t* prompt_lengths = nullptr;
  // [J] for policy random.
  const uint64_t* seeds = nullptr;
  // [J, block_table_stride] source blocks.
  const int32_t* block_tables = nullptr;
  // [J, block_table_stride] the first ceil(k / block_size) are written.
  const int32_t* target_tables = nullptr;
  int32_t block_table_stride = 0;
};

struct CompressionOpArgs {
  const CompressionBatch* batch;
  const PagedKvView* kv;
  int32_t layer_begin;
  int32_t num_layers;
  // Row length of score scratch.
  int32_t capacity;
};

// score = Alg. 1: softmax over the n slots of Q K^T * scale for the last min(window, n) queries,
// causal inside the window, max over the group's heads, mean over the window.
struct AttentionScoreArgs : CompressionOpArgs {
  float scale;
  // Output.
  float* score;
  // compression_workspace_bytes()
  float* workspace;
};

// score[i] = reduce(alpha * F[i], score[i]) for i < history. The caller keeps the result as the new
// F: see CompactArgs.
struct GlobalScoreArgs : CompressionOpArgs {
  float decay;
  ScoreReduce reduce;
  // Input and output.
  float* score;
};

// Max pool of odd `width`, stride 1, padded with -inf. With only_first, out = score for jobs whose
// history is > 0.
struct MaxPoolArgs : CompressionOpArgs {
  int32_t width;
  bool only_first;
  // Input.
  const float* score;
  // Differs from score.
  float* out;
};

// out = softmax(sum / (len * tau)) of method.md 3.1.4.
struct RedundancyArgs : CompressionOpArgs {
  // kRaw and kFlash give the same result; kRaw may use workspace for the matrix.
  Redundancy mode;
  float similarity_threshold;
  float temperature;
  // Turn keys back by positions first.
  bool derotate;
  // As in AttentionPrepareArgs; needed with derotate.
  const float* rope_cos_sin;
  int32_t rotary_dim;
  float* out;
  float* workspace;
};

// out = softmax(u_i . mean_j(u_j) / tau), u_i = unit(R(-pos_i) k_i) (method.md 3.2).
struct CenterRedundancyArgs : CompressionOpArgs {
  float temperature;
  const float* rope_cos_sin;
  int32_t rotary_dim;
  float* out;
  float* workspace;
};

// score[i] = F[i] / sum(F) over all n entries (method.md 3.2); 0 where the sum is 0.
struct NormalizedHistoryArgs : CompressionOpArgs {
  // F in score scratch layout, or null: kv's own.
  const float* history;
  float* score;
};

// score = convex: lambda*S - (1-lambda)*R; subtract: S - lambda*R (Eq. 4). A null input counts as
// absent: the other alone, with its sign (score = S, or score = -R).
struct CombineArgs : CompressionOpArgs {
  Combine combine;
  float weight;
  // S or null.
  const float* attention;
  // R or null.
  const float* redundancy;
  // May alias either input.
  float* score;
};

// Scores that need no queries. kRecency: score = slot index. kRandom: h = mix(mix(mix(seed +
// c*(layer+1)) + c*(head+1)) + c*(position+1)), score = (h >> 40) * 2^-24, where c =
// 0x9E3779B97F4A7C15, mix is the finalizer of splitmix64 (x ^= x>>30, x *= 0xBF58476D1CE4E5B9, x ^=
// x>>27, x *= 0x94D049BB133111EB, x ^= x>>31), layer counts from 0 over the whole model.
struct PlainScoreArgs : CompressionOpArgs {
  // kRecency or kRandom.
  KvPolicy policy;
  float* score;
};

// score = +inf for the newest `newest` entries, the entries with position < sinks, and with
// protect_prompt those with position < prompt length.
struct ProtectArgs : CompressionOpArgs {
  int32_t newest;
  int32_t sinks;
  bool protect_prompt;
  float* score;
};

// kept[j, l, h, 0..k) = slots of the k largest scores, ascending; ties go to the lower slot. NaN
// counts as -inf.
struct TopKArgs : CompressionOpArgs {
  const float* score;
  // [num_jobs, num_layers, num_kv_heads, kept_stride]
  int32_t* kept;
  int32_t kept_stride;
};

// Entry kept[.., i] of the source blocks moves to entry i of the target blocks; F and positions
// (where kv has them) move along into kv, positions of entries >= history being slot + offset. A
// target block is new, or the source's own with an index in the source table <= its index in the
// target table: moving in ascending order is then safe. F of an entry at or beyond kv's
// score_capacity counts as 0 (policies without F).
struct CompactArgs : CompressionOpArgs {
  // The new F in score scratch layout; null: kv's own F moves in place.
  const float* history;
  const int32_t* kept;
  int32_t kept_stride;
};

// Peak attention F (method.md 3.2) of rows that reached a length where it is updated. Runs for all
// layers, also while a request decodes. p_i = max over the last min(window, L) queries u and the
// group's heads of softmax(q_u K^T scale)_i * 2^(-(L-1-u)/H), causal; F_i = max(2^(-(L-L')/H) F_i,
// p_i), F = p where L' = 0, new entries start at 0.
struct PeakUpdateBatch {
  int32_t num_updates = 0;
  // Host knowledge.
  int32_t max_length = 0;
  // [U]
  const int32_t* slots = nullptr;
  // [U] L: KV entries.
  const int32_t* lengths = nullptr;
  // [U] L' of the last update; 0: none.
  const int32_t* previous_lengths = nullptr;
  // [U, block_table_stride]
  const int32_t* block_tables = nullptr;
  int32_t block_table_stride = 0;
};
struct PeakUpdateArgs {
  const PeakUpdateBatch* batch;
  const PagedKvView* kv;
  int32_t layer_begin;
  int32_t num_layers;
  float scale;
  // H, tokens.
  float half_life;
  // Null: kv's scores. Otherwise scratch [U, num_layers, num_kv_heads, capacity]: F = p of a prompt
  // longer than the score cache.
  float* scratch;
  int32_t capacity;
  float* workspace;
};

// The ops of this page, one line each: see ops/op_list.h.
#define ZIPAGE_COMPRESSION_OPS(op)                                                             \
  op(attention_score, AttentionScoreArgs) op(global_score, GlobalScoreArgs)                    \
      op(max_pool, MaxPoolArgs) op(redundancy, RedundancyArgs)                                 \
          op(center_redundancy, CenterRedundancyArgs)                                          \
              op(normalized_history, NormalizedHistoryArgs) op(combine, CombineArgs)           \
                  op(plain_score, PlainScoreArgs) op(protect, ProtectArgs) op(top_k, TopKArgs) \
                      op(compact, CompactArgs) op(peak_update, PeakUpdateArgs)

}  // namespace zipage
