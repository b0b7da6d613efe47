// The sampler on the GPU against double precision: which tokens take part, which one the draw hits,
// log-probabilities and ranks, over rows of every kind in one call.
#include "backend/cuda/kernels/sample/sample.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/compression/world.h"
#include "sampling/philox.h"

namespace zipage::test {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

float finite(float x) { return std::isnan(x) ? kNever : std::min(x, FLT_MAX); }

struct Input {
  int vocab;
  std::vector<float> logits;  // [rows, vocab]
  std::vector<SampleRow> rows;
  std::vector<int32_t> bias_ids;
  std::vector<float> bias_values;
  std::vector<uint32_t> counts, masks;
};

// Keys after allowed tokens, bias and penalties: f32, as the contract's order of operations has
// them.
std::vector<float> keys_of(const Input& in, size_t row) {
  const SampleRow& r = in.rows[row];
  std::vector<float> keys(in.logits.begin() + static_cast<std::ptrdiff_t>(row * in.vocab),
                          in.logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * in.vocab));
  for (float& k : keys) k = finite(k);
  for (int id = 0; r.mask_slot >= 0 && id < in.vocab; ++id) {
    if ((in.masks[static_cast<size_t>(r.mask_slot * ((in.vocab + 31) / 32) + id / 32)] >>
             (id % 32) &
         1u) == 0) {
      keys[static_cast<size_t>(id)] = kNever;
    }
  }
  for (int i = r.bias_begin; i < r.bias_begin + r.bias_count; ++i) {
    keys[static_cast<size_t>(in.bias_ids[static_cast<size_t>(i)])] +=
        in.bias_values[static_cast<size_t>(i)];
  }
  for (int id = 0; r.count_slot >= 0 && id < in.vocab; ++id) {
    const uint32_t count =
        in.counts[static_cast<size_t>(r.count_slot) * in.vocab + static_cast<size_t>(id)];
    if (count == 0) continue;
    const uint32_t times = count & 0x7fffffffu;
    float& k = keys[static_cast<size_t>(id)];
    k = k > 0 ? k / r.repetition_penalty : k * r.repetition_penalty;
    if (times > 0) {
      k -= r.frequency_penalty * static_cast<float>(times);
      k -= r.presence_penalty;
    }
  }
  for (float& k : keys) k = finite(k);
  return keys;
}

// True when `token` may be drawn: its place in the running sum of the kept weights holds the draw,
// up to `slack` of the mass (f32 weights, and tokens at the very edge of a cut).
bool may_draw(const SampleRow& r, const std::vector<float>& keys, int token, double slack) {
  const int vocab = static_cast<int>(keys.size());
  const float top = *std::max_element(keys.begin(), keys.end());
  if (top == kNever) return token == -1;
  std::vector<double> w(keys.size());
  const double scale = 1.0 / r.temperature;
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] = std::exp((static_cast<double>(keys[i]) - top) * scale);
    if (w[i] < r.min_p) w[i] = 0;
  }
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
  });
  if (r.top_k > 0 && r.top_k < vocab) {
    const float last = keys[static_cast<size_t>(order[static_cast<size_t>(r.top_k - 1)])];
    for (size_t i = 0; i < w.size(); ++i) w[i] = keys[i] < last ? 0 : w[i];
  }
  const auto cut = [&](const std::vector<int>& by, double mass, bool ties_stay) {
    const double target = mass * std::accumulate(w.begin(), w.end(), 0.0);
    double sum = 0;
    std::vector<double> kept(w.size(), 0);
    float last = 0;
    for (const int id : by) {
      const float key = keys[static_cast<size_t>(id)];
      if (sum >= target && !(ties_stay && key == last)) break;
      sum += kept[static_cast<size_t>(id)] = w[static_cast<size_t>(id)];
      last = key;
    }
    w = kept;
  };
  if (r.top_p < 1) cut(order, r.top_p, false);
  if (r.typical_p < 1) {
    const double total = std::accumulate(w.begin(), w.end(), 0.0);
    double entropy = 0;
    for (const double x : w) entropy -= x > 0 ? x / total * std::log(x / total) : 0;
    const auto distance = [&](int id) {
      return std::fabs(-std::log(w[static_cast<size_t>(id)] / total) - entropy);
    };
    std::vector<int> by;
    for (const int id : order) {
      if (w[static_cast<size_t>(id)] > 0) by.push_back(id);
    }
    std::stable_sort(by.begin(), by.end(), [&](int a, int b) { return distance(a) < distance(b); });
    cut(by, r.typical_p, true);
  }
  const double total = std::accumulate(w.begin(), w.end(), 0.0);
  const double target = philox_uniform(r.seed, r.step) * total;
  const double before = std::accumulate(w.begin(), w.begin() + token, 0.0);
  return before - slack * total <= target &&
         target <= before + w[static_cast<size_t>(token)] + slack * total;
}

Input make_input(int vocab, int kind, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto uniform = [&] { return static_cast<float>(random() % 1000) / 1000.0f; };
  Input in;
  in.vocab = vocab;
  const int num_rows = 24;
  const size_t words = static_cast<size_t>((vocab + 31) / 32);
  for (int slot = 0; slot < num_rows; ++slot) {
    for (int id = 0; id < vocab; ++id) {
      in.counts.push_back(random() % 4 == 0 ? static_cast<uint32_t>(random() % 5) |
                                                  (random() % 2 == 0 ? 1u << 31 : 0)
                                            : 0);
    }
    for (size_t i = 0; i < words; ++i) in.masks.push_back(static_cast<uint32_t>(random()));
  }
  for (int i = 0; i < num_rows; ++i) {
    SampleRow r;
    r.temperature = i % 4 == 0 ? 0.0f : 0.3f + uniform();
    if (i % 3 == 1) r.top_p = 0.5f + uniform() / 2;
    if (i % 5 == 2) r.top_k = 1 + static_cast<int>(random() % 60);
    if (i == 7) r.top_k = vocab / 2 + 1;
    if (i % 7 == 3) r.min_p = 0.05f;
    if (i % 8 == 5) r.typical_p = 0.7f;
    if (i % 6 == 4) {
      r.count_slot = num_rows - 1 - i;
      r.repetition_penalty = 1.3f;
      r.presence_penalty = 0.4f;
      r.frequency_penalty = 0.2f;
    }
    if (i % 6 == 5) r.mask_slot = i;
    if (i % 9 == 8 || i == 4) {
      r.bias_begin = static_cast<int32_t>(in.bias_ids.size());
      r.bias_count = 5;
      for (int b = 0; b < 5; ++b) {
        in.bias_ids.push_back(b == 4
                                  ? in.bias_ids.back()
                                  : static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
        in.bias_values.push_back(b == 1 ? kNever : 3 * normal(random));
      }
    }
    r.seed = random();
    r.step = random() % 5000;
    r.num_logprobs = i % 5 - 1;
    if (i == 9 || i == 14 || i == 16) r.given_token = i * vocab / num_rows;
    in.rows.push_back(r);
    for (int id = 0; id < vocab; ++id) {
      float x = kind == 1   ? static_cast<float>(random() % 3)
                : kind == 2 ? 0.5f
                            : 3 * normal(random);
      if (kind == 3 && id % 5 == 1)
        x = id % 2 == 0 ? kNever : std::numeric_limits<float>::quiet_NaN();
      if (kind == 4) x = kNever;
      if (kind == 3 && i % 4 == 1 && id == vocab / 2) x = -kNever;
      in.logits.push_back(x);
    }
  }
  return in;
}

class CudaSample : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CudaSample, EqualsDoublePrecision) {
  const int vocab = std::get<0>(GetParam()), kind = std::get<1>(GetParam());
  const Input in = make_input(vocab, kind, static_cast<uint64_t>(vocab * 7 + kind));
  const CudaContext context = open_context();
  const size_t n = in.rows.size();
  constexpr int kMost = 3;
  DeviceArray<float> logits(in.logits), bias_values(in.bias_values), logprobs(n),
      top_logprobs(n * kMost);
  DeviceArray<SampleRow> rows(in.rows);
  DeviceArray<int32_t> bias_ids(in.bias_ids), tokens(n), ranks(n), top_ids(n * kMost);
  DeviceArray<uint32_t> counts(in.counts), masks(in.masks);
  SampleArgs args{};
  args.logits = logits.data();
  args.num_rows = static_cast<int32_t>(n);
  args.vocab = vocab;
  args.rows = rows.data();
  args.bias_ids = bias_ids.data();
  args.bias_values = bias_values.data();
  args.token_counts = counts.data();
  args.allowed_masks = masks.data();
  args.max_logprobs = kMost;
  args.tokens = tokens.data();
  args.token_logprobs = logprobs.data();
  args.token_ranks = ranks.data();
  args.top_ids = top_ids.data();
  args.top_logprobs = top_logprobs.data();
  launch_sample(args, context, nullptr);
  ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  const auto got = tokens.download(), got_ranks = ranks.download(), got_ids = top_ids.download();
  const auto got_logprobs = logprobs.download(), got_top = top_logprobs.download();
  std::vector<uint32_t> want_counts = in.counts;
  for (size_t i = 0; i < n; ++i) {
    const SampleRow& r = in.rows[i];
    const std::vector<float> keys = keys_of(in, i);
    const int token = got[i];
    const bool nothing = r.given_token < 0 && *std::max_element(keys.begin(), keys.end()) == kNever;
    ASSERT_TRUE(token >= (nothing ? -1 : 0) && token < vocab) << "row " << i << " token " << token;
    if (r.given_token >= 0) {
      EXPECT_EQ(token, r.given_token) << "row " << i;
    } else if (nothing) {
      EXPECT_EQ(token, -1) << "row " << i;
    } else if (r.temperature <= 0) {
      EXPECT_EQ(token, std::max_element(keys.begin(), keys.end()) - keys.begin()) << "row " << i;
    } else {
      EXPECT_TRUE(may_draw(r, keys, token, 2e-5))
          << "row " << i << " token " << token << " temperature " << r.temperature << " top_k "
          << r.top_k << " top_p " << r.top_p << " min_p " << r.min_p << " typical_p "
          << r.typical_p;
    }
    if (r.count_slot >= 0 && r.given_token < 0 && !nothing)
      ++want_counts[static_cast<size_t>(r.count_slot) * vocab + static_cast<size_t>(token)];
    if (r.num_logprobs < 0) continue;
    std::vector<float> raw(in.logits.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                           in.logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
    for (float& x : raw) x = finite(x);
    const double top = *std::max_element(raw.begin(), raw.end());
    double sum = 0;
    for (const float x : raw) sum += top == kNever ? 0 : std::exp(x - top);
    std::vector<int> order(raw.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return raw[static_cast<size_t>(a)] > raw[static_cast<size_t>(b)];
    });
    const auto logprob = [&](int id) {
      return top == kNever
                 ? kNever
                 : static_cast<double>(raw[static_cast<size_t>(id)]) - top - std::log(sum);
    };
    const auto near = [&](double a, double b) {
      return a == b || std::fabs(a - b) < 1e-5 * (1 + std::fabs(b));
    };
    EXPECT_PRED2(near, got_logprobs[i], nothing ? kNever : logprob(token)) << "row " << i;
    const auto at_least = [&](float x) { return x >= raw[static_cast<size_t>(token)]; };
    EXPECT_EQ(got_ranks[i], nothing ? 0 : std::count_if(raw.begin(), raw.end(), at_least))
        << "row " << i;
    for (int k = 0; k < kMost; ++k) {
      const size_t at = i * kMost + static_cast<size_t>(k);
      const bool filled = k < std::min({r.num_logprobs, kMost, vocab});
      ASSERT_EQ(got_ids[at], filled ? order[static_cast<size_t>(k)] : -1)
          << "row " << i << " place " << k;
      EXPECT_PRED2(near, got_top[at], filled ? logprob(got_ids[at]) : kNever)
          << "row " << i << " place " << k;
    }
  }
  EXPECT_EQ(counts.download(), want_counts);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies,
                         CudaSample,
                         testing::Combine(testing::Values(1, 7, 1000, 32003, 151936),
                                          testing::Range(0, 5)));

// The same row gives the same token alone and among others.
TEST(CudaSampleAlone, ARowDoesNotDependOnTheOthers) {
  const Input in = make_input(5000, 0, 5);
  const CudaContext context = open_context();
  DeviceArray<SampleRow> rows(in.rows);
  DeviceArray<int32_t> bias_ids(in.bias_ids), tokens(in.rows.size()), alone(1);
  DeviceArray<float> bias_values(in.bias_values);
  DeviceArray<uint32_t> masks(in.masks);
  SampleArgs args{};
  args.vocab = in.vocab;
  args.bias_ids = bias_ids.data();
  args.bias_values = bias_values.data();
  args.allowed_masks = masks.data();
  DeviceArray<float> logits(in.logits);
  DeviceArray<uint32_t> counts(in.counts);
  args.logits = logits.data();
  args.token_counts = counts.data();
  args.num_rows = static_cast<int32_t>(in.rows.size());
  args.rows = rows.data();
  args.tokens = tokens.data();
  launch_sample(args, context, nullptr);
  ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<int32_t> together = tokens.download();
  for (size_t i = 0; i < in.rows.size(); ++i) {
    DeviceArray<float> fresh(in.logits);
    DeviceArray<uint32_t> fresh_counts(in.counts);
    args.logits = fresh.data() + i * static_cast<size_t>(in.vocab);
    args.token_counts = fresh_counts.data();
    args.num_rows = 1;
    args.rows = rows.data() + i;
    args.tokens = alone.data();
    launch_sample(args, context, nullptr);
    ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
    if (in.rows[i].count_slot < 0) {
      EXPECT_EQ(alone.download()[0], together[i]) << "row " << i;
    }
  }
}

}  // namespace
}  // namespace zipage::test
