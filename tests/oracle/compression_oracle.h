// The method's scores, selection and compaction in double precision, for one request, layer and KV
// head (docs/method.md 3; "Alg." and "Eq." are the paper's). Keys are [n][head_dim] as stored,
// dequantised.
#pragma once

#include <cstdint>
#include <vector>

#include "zipage/options.h"

namespace zipage::oracle {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// queries[u][g]: query u of the window (oldest first) of the group's head g; query u sits at slot n
// - queries.size() + u.
using Window = std::vector<Rows>;

// Alg. 1 and method.md 3.1.1: softmax over the n slots with the causal mask inside the window, max
// over heads, mean over u.
Row attention_score(const Window& queries, const Rows& keys, double scale);

// Alg. 2 and method.md 3.1.2: s = max(alpha * f, s), or the sum, for the entries that have a
// history.
Row global_score(const Row& score, const Row& history, double decay, ScoreReduce reduce);

// Eq. 3 and method.md 3.1.3.
Row max_pool(const Row& score, int width);

// R(-pos_i) k_i: the half-split rotation turned back, rotary dimensions only. cos_sin[pos] holds
// the cosines of rotary_dim / 2 angles, then their sines.
Rows derotate(const Rows& keys,
              const std::vector<int>& positions,
              const Rows& cos_sin,
              int rotary_dim);

struct RedundancyResult {
  Row score;
  // Smallest |similarity - threshold|: a float cannot be asked to decide closer ones.
  double margin;
};
// method.md 3.1.4 with pairs inside blocks of `span` entries (span = n: raw and flash; block_size:
// lightning), len = span.
RedundancyResult redundancy(const Rows& keys, int span, double threshold, double temperature);

// method.md 3.2: softmax(u_i . mean_j(u_j) / tau) of keys that have been turned back.
Row center_redundancy(const Rows& keys, double temperature);
// The same from all pairs: softmax(mean_j(u_i . u_j) / tau).
Row center_redundancy_by_pairs(const Rows& keys, double temperature);

// method.md 3.2: S = F / sum(F).
Row normalized_history(const Row& history);

// Eq. 4 and method.md 3.1.5. Null: absent.
Row combine(const Row* attention, const Row* redundancy, double weight, Combine combine);

// Policy random: backend/ops/compression.h, PlainScoreArgs.
double random_score(uint64_t seed, int layer, int head, int position);

// method.md 3.1.6.
Row protect(Row score,
            const std::vector<int>& positions,
            int newest,
            int sinks,
            bool protect_prompt,
            int prompt_length);

// method.md 3.1.7: the k largest, ties to the lower slot, NaN as -inf; slots ascending.
std::vector<int> top_k(const std::vector<float>& score, int k);

// method.md 3.2, by windows: F after an update at length L = keys.size(). `history` is F at length
// `previous` (0: none).
Row peak_update(const Window& queries,
                const Rows& keys,
                double scale,
                double half_life,
                const Row& history,
                int previous);
// By the per-step rule: F_i = max(2^(-1/H) F_i, p_i) at every length from `begin` + 1 on, one query
// a step, where all_queries[t] are the heads of the query at slot t.
Row peak_by_steps(
    const Window& all_queries, const Rows& keys, double scale, double half_life, int begin);

}  // namespace zipage::oracle
