#include "oracle/compression_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace zipage::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Row softmax(Row x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (double& v : x) v /= sum;
  return x;
}

// One query at slot `at`: softmax over the slots it sees; 0 beyond.
Row attend(const Row& query, const Rows& keys, double scale, int at) {
  Row logits(keys.size(), -kInf);
  for (int i = 0; i <= at; ++i) {
    logits[static_cast<size_t>(i)] = scale * dot(query, keys[static_cast<size_t>(i)]);
  }
  return softmax(logits);
}

// Max over the heads of the group.
Row attend_heads(const Rows& heads, const Rows& keys, double scale, int at) {
  Row best(keys.size(), 0);
  for (const Row& query : heads) {
    const Row p = attend(query, keys, scale, at);
    for (size_t i = 0; i < p.size(); ++i) best[i] = std::max(best[i], p[i]);
  }
  return best;
}

Rows unit_rows(Rows keys) {
  for (Row& k : keys) {
    const double norm = std::max(std::sqrt(dot(k, k)), 1e-6);
    for (double& v : k) v /= norm;
  }
  return keys;
}

}  // namespace

Row attention_score(const Window& queries, const Rows& keys, double scale) {
  const int n = static_cast<int>(keys.size());
  const int w = static_cast<int>(queries.size());
  Row score(keys.size(), 0);
  for (int u = 0; u < w; ++u) {
    const Row p = attend_heads(queries[static_cast<size_t>(u)], keys, scale, n - w + u);
    for (size_t i = 0; i < p.size(); ++i) score[i] += p[i] / w;
  }
  return score;
}

Row global_score(const Row& score, const Row& history, double decay, ScoreReduce reduce) {
  Row out = score;
  for (size_t i = 0; i < history.size(); ++i) {
    const double old = decay * history[i];
    out[i] = reduce == ScoreReduce::kMax ? std::max(old, out[i]) : old + out[i];
  }
  return out;
}

Row max_pool(const Row& score, int width) {
  const int n = static_cast<int>(score.size());
  Row out(score.size(), -kInf);
  for (int i = 0; i < n; ++i) {
    for (int j = i - width / 2; j <= i + width / 2; ++j) {
      if (j < 0 || j >= n) continue;  // the padding is -inf
      out[static_cast<size_t>(i)] =
          std::max(out[static_cast<size_t>(i)], score[static_cast<size_t>(j)]);
    }
  }
  return out;
}

Rows derotate(const Rows& keys,
              const std::vector<int>& positions,
              const Rows& cos_sin,
              int rotary_dim) {
  Rows out = keys;
  const auto half = static_cast<size_t>(rotary_dim / 2);
  for (size_t i = 0; i < keys.size(); ++i) {
    const Row& table = cos_sin[static_cast<size_t>(positions[i])];
    for (size_t j = 0; j < half; ++j) {
      const double c = table[j];
      const double s = -table[half + j];  // the angle turned back
      out[i][j] = keys[i][j] * c - keys[i][half + j] * s;
      out[i][half + j] = keys[i][half + j] * c + keys[i][j] * s;
    }
  }
  return out;
}

RedundancyResult redundancy(const Rows& keys, int span, double threshold, double temperature) {
  const int n = static_cast<int>(keys.size());
  const Rows u = unit_rows(keys);
  RedundancyResult result;
  result.margin = kInf;
  Row sums(keys.size(), 0);
  for (int column = 0; column < n; ++column) {
    const int begin = column / span * span;
    const int end = std::min(begin + span, n);
    bool zeroed = false;
    // From the newest row to the oldest: the first above the threshold is the last of the column
    // (Alg. 3, line 11).
    for (int row = end - 1; row >= begin; --row) {
      if (row == column) continue;  // the diagonal is 0
      const double similarity = dot(u[static_cast<size_t>(row)], u[static_cast<size_t>(column)]);
      result.margin = std::min(result.margin, std::fabs(similarity - threshold));
      if (similarity > threshold && !zeroed) {
        zeroed = true;
        continue;
      }
      sums[static_cast<size_t>(row)] += similarity;
    }
  }
  for (double& s : sums) s /= span * temperature;
  result.score = softmax(sums);
  return result;
}

Row center_redundancy(const Rows& keys, double temperature) {
  const Rows u = unit_rows(keys);
  Row mean(keys[0].size(), 0);
  for (const Row& row : u) {
    for (size_t j = 0; j < mean.size(); ++j) mean[j] += row[j] / static_cast<double>(u.size());
  }
  Row x;
  for (const Row& row : u) x.push_back(dot(row, mean) / temperature);
  return softmax(x);
}

Row center_redundancy_by_pairs(const Rows& keys, double temperature) {
  const Rows u = unit_rows(keys);
  Row x;
  for (const Row& row : u) {
    double sum = 0;
    for (const Row& other : u) sum += dot(row, other);  // j = i included
    x.push_back(sum / static_cast<double>(u.size()) / temperature);
  }
  return softmax(x);
}

Row normalized_history(const Row& history) {
  const double sum = std::accumulate(history.begin(), history.end(), 0.0);
  Row out = history;
  for (double& v : out) v = sum > 0 ? v / sum : 0;
  return out;
}

Row combine(const Row* attention, const Row* redundancy, double weight, Combine combine) {
  Row out(attention != nullptr ? attention->size() : redundancy->size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (redundancy == nullptr) {
      out[i] = (*attention)[i];
    } else if (attention == nullptr) {
      out[i] = -(*redundancy)[i];
    } else if (combine == Combine::kConvex) {
      out[i] = weight * (*attention)[i] - (1 - weight) * (*redundancy)[i];
    } else {
      out[i] = (*attention)[i] - weight * (*redundancy)[i];  // Eq. 4
    }
  }
  return out;
}

double random_score(uint64_t seed, int layer, int head, int position) {
  const uint64_t golden = 0x9E3779B97F4A7C15u;
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  };
  uint64_t h = seed;
  for (const int part : {layer, head, position}) {
    h = mix(h + golden * static_cast<uint64_t>(part + 1));
  }
  return std::ldexp(static_cast<double>(h >> 40), -24);
}

Row protect(Row score,
            const std::vector<int>& positions,
            int newest,
            int sinks,
            bool protect_prompt,
            int prompt_length) {
  const int n = static_cast<int>(score.size());
  for (int i = 0; i < n; ++i) {
    const int position = positions[static_cast<size_t>(i)];
    if (i >= n - newest || position < sinks || (protect_prompt && position < prompt_length)) {
      score[static_cast<size_t>(i)] = kInf;
    }
  }
  return score;
}

std::vector<int> top_k(const std::vector<float>& score, int k) {
  const auto value = [&](int i) {
    const float s = score[static_cast<size_t>(i)];
    return std::isnan(s) ? -std::numeric_limits<float>::infinity() : s;
  };
  std::vector<int> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return value(a) > value(b); });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

Row peak_update(const Window& queries,
                const Rows& keys,
                double scale,
                double half_life,
                const Row& history,
                int previous) {
  const int length = static_cast<int>(keys.size());
  const int w = static_cast<int>(queries.size());
  Row f(keys.size(), 0);
  for (int i = 0; i < previous; ++i) {
    f[static_cast<size_t>(i)] =
        std::exp2(-(length - previous) / half_life) * history[static_cast<size_t>(i)];
  }
  for (int u = 0; u < w; ++u) {
    const int at = length - w + u;
    const double weight = std::exp2(-(length - 1 - at) / half_life);
    const Row p = attend_heads(queries[static_cast<size_t>(u)], keys, scale, at);
    for (size_t i = 0; i < f.size(); ++i) f[i] = std::max(f[i], weight * p[i]);
  }
  return f;
}

Row peak_by_steps(
    const Window& all_queries, const Rows& keys, double scale, double half_life, int begin) {
  Row f(keys.size(), 0);
  for (int t = begin; t < static_cast<int>(keys.size()); ++t) {
    const Row p = attend_heads(all_queries[static_cast<size_t>(t)], keys, scale, t);
    for (size_t i = 0; i < f.size(); ++i) f[i] = std::max(std::exp2(-1 / half_life) * f[i], p[i]);
  }
  return f;
}

}  // namespace zipage::oracle
