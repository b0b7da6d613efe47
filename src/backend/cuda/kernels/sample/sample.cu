// The sampler: one block a row, in the order of operations of backend/ops/sampling.h.
//
// Idea: the vocabulary is never sorted. One pass over the logits finds the maximum and with it a lower bound for the best
// tokens; a second collects them into a short list, which decides top-k and top-p. Only where the list does not (flat
// distributions, large top-k, typical-p) the cut is found digit by digit of the keys, as in a radix select. Logits are only
// read, except for biases. Sums run in a fixed order or in integers: a row's token depends on the row alone.
//
// Cost of 157 rows of 151,936 logits: 95 MB, 0.022 ms at 4.27 TB/s (twice that where two passes are needed).
// Measured (H200, 2026-11-30, bench_ops_cuda_sample), 157 rows: greedy 0.042 ms, 53 %; temperature 0.092; top-k 20 with top-p
// 0.95 0.108; with a repetition penalty 0.421; typical-p 0.894. One row: greedy 0.018, top-k 0.061: one multiprocessor's
// speed, since a row has one block.
#include <cfloat>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/sample/sample.h"
#include "backend/cuda/kernels/sample/sample_row.cuh"
#include "sampling/philox.h"

namespace zipage {
namespace {

using namespace sampler;  // NOLINT: this file's own

constexpr float kMostScale = 1e30f;           // of 1 / temperature: logits times it stay finite
constexpr uint32_t kNoOrdinal = 0xffffffffu;  // no key has it

// One warp: the segment in which the running sum of `segment_sums` passes fraction * (their sum), the last one with mass when
// rounding keeps it from doing so; *target: that product, *before: the sum of the segments ahead.
__device__ int find_segment(
    const Row& row, double fraction, const double* segment_sums, double* target, double* before) {
  const int lane = lane_id();
  const int segments = (row.vocab + kSegment - 1) / kSegment;
  double total = 0;
  int last_segment = 0;
  for (int base = 0; base < segments; base += 32) {
    const double x = base + lane < segments ? segment_sums[base + lane] : 0.0;
    total += warp_sum(x);
    const uint32_t some = __ballot_sync(kAllLanes, x > 0);
    if (some != 0) last_segment = base + 31 - __clz(static_cast<int>(some));
  }
  *target = fraction * total;
  *before = 0;
  for (int base = 0; base < segments; base += 32) {
    const double x = base + lane < segments ? segment_sums[base + lane] : 0.0;
    const double running = *before + warp_inclusive_sum(x);
    const uint32_t passed = __ballot_sync(kAllLanes, running > *target);
    if (passed != 0) {
      const int at = __ffs(static_cast<int>(passed)) - 1;
      *before = __shfl_sync(kAllLanes, running - x, at);
      return base + at;
    }
    *before = __shfl_sync(kAllLanes, running, 31);
  }
  return last_segment;
}
// One warp: the lowest id of the segment at which `before` plus the running sum of mass passes `target`.
template <typename Mass>
__device__ uint32_t
find_in_segment(const Row& row, int segment, double target, double before, Mass&& mass) {
  const int lane = lane_id();
  int32_t result = -1, last = 0;
  for (int j = 0; j < kUnroll && result < 0; ++j) {
    const int first = segment * kSegment + 32 * j;
    const int id = first + lane;
    const double x =
        id < row.vocab ? static_cast<double>(mass(id, row.key(id, row.logits[id]))) : 0.0;
    const double running = before + warp_inclusive_sum(x);
    const uint32_t passed = __ballot_sync(kAllLanes, x > 0 && running > target);
    const uint32_t some = __ballot_sync(kAllLanes, x > 0);
    if (some != 0) last = first + 31 - __clz(static_cast<int>(some));
    if (passed != 0) result = first + __ffs(static_cast<int>(passed)) - 1;
    before = __shfl_sync(kAllLanes, running, 31);
  }
  // The segment's sum was rounded to more than the running one: the target lies at its end.
  return static_cast<uint32_t>(result >= 0 ? result : last);
}

// The lowest id at which the running sum of mass(id, key) passes fraction * (the sum of all).
template <typename Mass>
__device__ int32_t
locate(const Row& row, double fraction, Shared& shared, double* segment_sums, Mass&& mass) {
  float sum = 0;
  for_segments(
      row, [&](int32_t id, float key) { sum += mass(id, key); },
      [&](int segment) {
        const double total = warp_sum(static_cast<double>(sum));
        if (lane_id() == 0) segment_sums[segment] = total;
        sum = 0;
      });
  __syncthreads();
  if (threadIdx.x < 32) {
    double target, before;
    const int segment = find_segment(row, fraction, segment_sums, &target, &before);
    const uint32_t id = find_in_segment(row, segment, target, before, mass);
    if (lane_id() == 0) shared.found[0] = id;
  }
  __syncthreads();
  const auto id = static_cast<int32_t>(shared.found[0]);
  __syncthreads();
  return id;
}

// The end of the shortest prefix of an order (ordinal falling, id rising) whose mass is at least
// `target`; everything when rounding keeps it from getting there.
struct Cut {
  uint32_t ordinal = 0;
  uint32_t id = kAnyId;
  __device__ bool keeps(uint32_t value, int32_t token) const {
    return value > ordinal || (value == ordinal && static_cast<uint32_t>(token) <= id);
  }
};

using Fixed = unsigned long long;  // a mass in units of 2^-44

// Adds mass `m` to bin `bin`, exactly whatever the order.
__device__ inline void add_mass(Shared& shared, uint32_t bin, float m) {
  const float scaled = m * kFixedPoint;
  auto high = static_cast<uint32_t>(scaled);
  const auto low = static_cast<uint32_t>((scaled - static_cast<float>(high)) * 0x1p32f);
  const uint32_t old = atomicAdd(&shared.bins[0][bin], low);
  high += old + low < old ? 1u : 0u;
  if (high != 0) atomicAdd(&shared.bins[1][bin], high);
}
__device__ inline Fixed mass_of(const Shared& shared, int bin) {
  return static_cast<Fixed>(shared.bins[1][bin]) << 32 | shared.bins[0][bin];
}

// One warp: the bin, from the largest down, at which `before` plus the masses reaches `wanted`. shared.found: whether there
// is one, the bin, and the mass before it in two words.
__device__ void find_bin(Shared& shared, Fixed before, Fixed wanted) {
  constexpr int kLaneBins = kDigitBins / 32;
  const int lane = lane_id();
  const int top = kDigitBins - 1 - lane * kLaneBins;
  Fixed mine = 0;
  for (int i = 0; i < kLaneBins; ++i) mine += mass_of(shared, top - i);
  const Fixed running = warp_inclusive_sum(mine);
  const uint32_t reached = __ballot_sync(kAllLanes, before + running >= wanted && mine > 0);
  if (reached == 0 || lane != __ffs(static_cast<int>(reached)) - 1) return;
  Fixed sum = before + running - mine;
  for (int i = 0; i < kLaneBins; ++i) {
    const Fixed x = mass_of(shared, top - i);
    if (x > 0 && sum + x >= wanted) {
      shared.found[0] = 1;
      shared.found[1] = static_cast<uint32_t>(top - i);
      shared.found[2] = static_cast<uint32_t>(sum);
      shared.found[3] = static_cast<uint32_t>(sum >> 32);
      return;
    }
    sum += x;
  }
}

// By three digits of the ordinals. order(id, key) is the ordinal; tokens of mass 0 take no part,
// mass <= 1.
template <typename Key, typename Order, typename Mass>
__device__ Cut find_cut(const Row& row,
                        Key&& key_of,
                        double target,
                        bool ties_stay,
                        Shared& shared,
                        double* segment_sums,
                        Order&& order,
                        Mass&& mass) {
  const Fixed wanted = static_cast<Fixed>(ceil(target * 0x1p44));
  Fixed before = 0;
  uint32_t prefix = 0;
  const int shifts[3] = {21, 10, 0};
  const int widths[3] = {11, 11, 10};
#pragma unroll 1
  for (int digit = 0; digit < 3; ++digit) {
    const int shift = shifts[digit], width = widths[digit];
    __syncthreads();
    for (int i = threadIdx.x; i < kDigitBins; i += kThreads)
      shared.bins[0][i] = shared.bins[1][i] = 0;
    if (threadIdx.x == 0) shared.found[0] = 0;
    __syncthreads();
    for_tokens_slowly(row, key_of, [&](int32_t id, float key) {
      const float m = mass(id, key);
      const uint32_t value = order(id, key);
      if (m <= 0 || (digit > 0 && value >> (shift + width) != prefix)) return;
      add_mass(shared, value >> shift & ((1u << width) - 1), m);
    });
    __syncthreads();
    if (threadIdx.x < 32) find_bin(shared, before, wanted);
    __syncthreads();
    if (shared.found[0] == 0) return Cut{};
    prefix = prefix << width | shared.found[1];
    before = static_cast<Fixed>(shared.found[3]) << 32 | shared.found[2];
  }
  Cut cut{prefix, kAnyId};
  if (ties_stay) return cut;
  // Of the tokens with this very key, those with the lowest ids.
  float each = 0;
  double equals = 0;
  for_tokens_slowly(row, key_of, [&](int32_t id, float key) {
    const float m = mass(id, key);
    if (m > 0 && order(id, key) == prefix) equals += 1, each = m;
  });
  equals = block_total(equals, shared);
  each = static_cast<float>(block_best({each, 0}, shared).key);
  const double missing = static_cast<double>(wanted - before) * 0x1p-44;
  const double needed = fmax(ceil(missing / static_cast<double>(each)), 1.0);
  if (needed >= equals) return cut;
  cut.id = static_cast<uint32_t>(
      locate(row, (needed - 0.5) / equals, shared, segment_sums, [&](int32_t id, float) {
        const float key = key_of(id, row.logits[id]);
        return mass(id, key) > 0 && order(id, key) == prefix ? 1.0f : 0.0f;
      }));
  return cut;
}

// One warp: the number of list entries whose weights, in order, first reach `target`; 0: they do
// not. *sum: of all.
template <typename Weight>
__device__ int list_prefix(
    const Shared& shared, int count, double target, bool pass, double* sum, Weight&& weight) {
  const int lane = threadIdx.x % 32;
  double before = 0;
  int result = 0;
  for (int base = 0; base < count; base += 32) {
    const double x =
        base + lane < count
            ? static_cast<double>(weight(from_ordinal(list_ordinal(shared.list[base + lane]))))
            : 0.0;
    const double running = before + warp_inclusive_sum(x);
    const uint32_t reached = __ballot_sync(
        kAllLanes, base + lane < count && (pass ? running > target : running >= target));
    if (result == 0 && reached != 0) result = base + __ffs(static_cast<int>(reached));
    before = __shfl_sync(kAllLanes, running, 31);
  }
  *sum = before;
  return result;
}

// The weight of a token: e^((key - top) / temperature), 0 below min-p (p < min_p * p_max; the most likely token weighs 1).
struct Weight {
  float top;
  float scale;
  float min_p;
  __device__ float operator()(float key) const {
    const float w = expf((key - top) * scale);
    return w < min_p ? 0.0f : w;
  }
};

// What limits the tokens of a row.
struct DrawLimits {
  bool count;  // top-k
  bool mass;   // top-p
  bool typical;
  __device__ explicit DrawLimits(const Row& row)
      : count(row.choice.top_k > 0 && row.choice.top_k < row.vocab),
        mass(row.choice.top_p < 1),
        typical(row.choice.typical_p < 1) {}
  __device__ bool any() const { return count || mass || typical; }
};

// One warp: how many of the sorted list's `count` entries may be drawn; 0: the list is too short to say. `total`: the weight
// of all tokens.
__device__ int kept_of_list(const Shared& shared,
                            const SampleRow& choice,
                            const DrawLimits& limits,
                            const Weight& weight,
                            int count,
                            double total) {
  int kept = count;
  if (limits.count && count > choice.top_k) {  // ties with the last stay
    const uint32_t last = list_ordinal(shared.list[choice.top_k - 1]);
    kept = choice.top_k;
    while (kept < count && list_ordinal(shared.list[kept]) == last) ++kept;
  }
  double sum = total;
  if (limits.count) list_prefix(shared, kept, 0, false, &sum, weight);
  if (!limits.mass) return kept;
  double ignored;
  const int prefix =
      list_prefix(shared, kept, static_cast<double>(choice.top_p) * sum, false, &ignored, weight);
  if (prefix > 0) return prefix;
  return limits.count ? kept : 0;
}

// Draws among the first `kept` entries of the sorted list, in order of their ids.
__device__ int32_t draw_of_list(Shared& shared, const Weight& weight, int kept, double uniform) {
  const auto swap_words = [&] {
    for (int i = threadIdx.x; i < kept; i += kThreads)
      shared.list[i] = shared.list[i] << 32 | shared.list[i] >> 32;
    __syncthreads();
  };
  swap_words();
  sort_list(shared, kept);
  swap_words();
  if (threadIdx.x < 32) {
    double sum = 0, ignored;
    list_prefix(shared, kept, 0, false, &sum, weight);
    const int picked = list_prefix(shared, kept, uniform * sum, true, &ignored, weight);
    if (threadIdx.x == 0) {
      shared.found[1] =
          static_cast<uint32_t>(list_id(shared.list[picked > 0 ? picked - 1 : kept - 1]));
    }
  }
  __syncthreads();
  return static_cast<int32_t>(shared.found[1]);
}

// Collects the about `wanted` best tokens and draws among them; -1 where they do not decide.
__device__ int32_t draw_of_best(const Row& row,
                                const DrawLimits& limits,
                                const Weight& weight,
                                float thread_best,
                                int wanted,
                                double uniform,
                                Shared& shared) {
  const uint32_t floor = list_floor(thread_best, wanted);
  if (threadIdx.x == 0) shared.list_count = 0;
  __syncthreads();
  double total = 0;
  for_tokens(row, [&](int32_t id, float key) {
    const float w = weight(key);
    total += static_cast<double>(w);
    const uint32_t value = ordinal(key);
    if (w > 0 && value >= floor) append(shared, value, id);
  });
  total = block_total(total, shared);
  const auto count = static_cast<int>(shared.list_count);
  if (count > kListSize) return -1;
  sort_list(shared, count);
  if (threadIdx.x < 32) {
    const int kept = kept_of_list(shared, row.choice, limits, weight, count, total);
    if (threadIdx.x == 0) shared.found[0] = static_cast<uint32_t>(kept);
  }
  __syncthreads();
  const auto kept = static_cast<int>(shared.found[0]);
  if (kept > 0) return draw_of_list(shared, weight, kept, uniform);
  __syncthreads();
  return -1;
}

// Draws where the best tokens do not decide: the limits' cuts are found digit by digit.
__device__ int32_t draw_by_cuts(const Row& row,
                                const DrawLimits& limits,
                                const Weight& weight,
                                double uniform,
                                Shared& shared,
                                double* segment_sums) {
  const SampleRow& choice = row.choice;
  Cut cut;
  const auto kept_weight = [&](int32_t id, float key) {
    return cut.keeps(ordinal(key), id) ? weight(key) : 0.0f;
  };
  const auto by_key = [](int32_t, float key) { return ordinal(key); };
  const auto total_of = [&](auto&& mass) {
    double total = 0;
    for_tokens_slowly(row, Keys{row},
                      [&](int32_t id, float key) { total += static_cast<double>(mass(id, key)); });
    return block_total(total, shared);
  };
  if (limits.count) {
    cut = find_cut(row, Keys{row}, choice.top_k, true, shared, segment_sums, by_key,
                   [&](int32_t, float key) { return weight(key) > 0 ? 1.0f : 0.0f; });
  }
  if (limits.mass) {
    const double total = total_of(kept_weight);
    cut = find_cut(row, Keys{row}, static_cast<double>(choice.top_p) * total, false, shared,
                   segment_sums, by_key, kept_weight);
  }
  if (!limits.typical) return locate(row, uniform, shared, segment_sums, kept_weight);

  // Tokens whose information -log p is nearest the entropy, until their mass is typical_p; ties
  // stay.
  const double total = total_of(kept_weight);
  const double log_total = log(total);
  const double entropy = total_of([&](int32_t id, float key) {
    const float w = kept_weight(id, key);
    return w > 0 ? static_cast<double>(w) / total *
                       (static_cast<double>((weight.top - key) * weight.scale) + log_total)
                 : 0.0;
  });
  const auto offset = static_cast<float>(log_total - entropy);
  const auto by_information = [&](int32_t, float key) {
    return ordinal(-fabsf((weight.top - key) * weight.scale + offset));
  };
  const Cut typical_cut = find_cut(row, Keys{row}, static_cast<double>(choice.typical_p) * total,
                                   true, shared, segment_sums, by_information, kept_weight);
  return locate(row, uniform, shared, segment_sums, [&](int32_t id, float key) {
    return typical_cut.keeps(by_information(id, key), id) ? kept_weight(id, key) : 0.0f;
  });
}

// Draws a token; `best` is the most likely one, `thread_best` the largest key that this thread has
// seen.
__device__ int32_t
draw(const Row& row, Best best, float thread_best, Shared& shared, double* segment_sums) {
  const SampleRow& choice = row.choice;
  const Weight weight{best.key, fminf(1.0f / choice.temperature, kMostScale), choice.min_p};
  const double uniform = philox_uniform(choice.seed, choice.step);
  const DrawLimits limits(row);
  if (!limits.any()) {
    return locate(row, uniform, shared, segment_sums,
                  [&](int32_t, float key) { return weight(key); });
  }
  const int attempts = limits.typical || (limits.count && choice.top_k > kThreads) ? 0
                       : limits.count                                              ? 1
                                                                                   : 2;
#pragma unroll 1
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const int aim = attempt == 0 ? kListAim : kThreads;
    const int32_t token = draw_of_best(row, limits, weight, thread_best,
                                       limits.count ? choice.top_k : aim, uniform, shared);
    if (token >= 0) return token;
  }
  return draw_by_cuts(row, limits, weight, uniform, shared, segment_sums);
}

// The `wanted` tokens of the largest raw logits to the front of the list, best first. Where append() has collected too many or
// could not, the cut is found first.
__device__ void sort_best(const Row& row, int wanted, Shared& shared, double* segment_sums) {
  if (wanted > kThreads || shared.list_count > kListSize) {
    const auto by_key = [](int32_t, float key) { return ordinal(key); };
    const Cut cut = find_cut(row, RawKeys{}, wanted, false, shared, segment_sums, by_key,
                             [](int32_t, float) { return 1.0f; });
    if (threadIdx.x == 0) shared.list_count = 0;
    __syncthreads();
    for_tokens_slowly(row, RawKeys{}, [&](int32_t id, float key) {
      if (cut.keeps(ordinal(key), id)) append(shared, ordinal(key), id);
    });
    __syncthreads();
  }
  sort_list(shared, static_cast<int>(shared.list_count));
}

// Of the raw logits: log p = x - top - log(sum of e^(x - top)).
__device__ void write_logprobs(const SampleArgs& args,
                               const Row& row,
                               int index,
                               int32_t token,
                               Shared& shared,
                               double* segment_sums) {
  Best mine{-INFINITY, INT32_MAX};
  for_tokens_slowly(row, RawKeys{}, [&](int32_t id, float key) {
    if (key > mine.key) mine = {key, id};
  });
  const Best best = block_best(mine, shared);
  const bool nothing = best.key == -INFINITY;
  const bool wants_list = args.top_ids != nullptr || args.top_logprobs != nullptr;
  const int wanted =
      wants_list ? min(min(row.choice.num_logprobs, args.max_logprobs), row.vocab) : 0;
  const uint32_t floor =
      wanted > 0 && wanted <= kThreads ? list_floor(mine.key, wanted) : kNoOrdinal;
  if (threadIdx.x == 0) shared.list_count = 0;
  __syncthreads();
  const float chosen = token >= 0 ? finite(row.logits[token]) : INFINITY;
  double sum = 0, at_least = 0;
  for_tokens_slowly(row, RawKeys{}, [&](int32_t id, float key) {
    if (!nothing) sum += static_cast<double>(expf(key - best.key));
    if (key >= chosen) at_least += 1;
    if (ordinal(key) >= floor) append(shared, ordinal(key), id);
  });
  sum = block_total(sum, shared);
  at_least = block_total(at_least, shared);
  const double log_sum = nothing ? 0 : log(sum);
  const auto logprob = [&](float key) {
    return nothing ? -INFINITY
                   : static_cast<float>(static_cast<double>(key) - static_cast<double>(best.key) -
                                        log_sum);
  };
  if (threadIdx.x == 0) {
    if (args.token_logprobs != nullptr)
      args.token_logprobs[index] = token >= 0 ? logprob(chosen) : -INFINITY;
    if (args.token_ranks != nullptr) args.token_ranks[index] = static_cast<int32_t>(at_least);
  }
  if (!wants_list) return;
  if (wanted > 0) sort_best(row, wanted, shared, segment_sums);
  for (int i = threadIdx.x; i < args.max_logprobs; i += kThreads) {
    const int64_t at = static_cast<int64_t>(index) * args.max_logprobs + i;
    const int32_t id = i < wanted ? list_id(shared.list[i]) : -1;
    if (args.top_ids != nullptr) args.top_ids[at] = id;
    if (args.top_logprobs != nullptr)
      args.top_logprobs[at] = id >= 0 ? logprob(finite(row.logits[id])) : -INFINITY;
  }
}

// Marks the biased tokens in `bits`, a bit a token. Where nobody asks for the raw logits, biased ones take their place, once
// for all entries of an id; otherwise row.key() adds the biases each time.
__device__ void add_biases(Row& row, float* logits, uint32_t* bits, bool keep_raw) {
  const SampleRow& choice = row.choice;
  const int words = (row.vocab + 31) / 32;
  for (int i = threadIdx.x; i < words; i += kThreads) bits[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < choice.bias_count; i += kThreads) {
    const int32_t id = row.bias_ids[i];
    if (id < 0 || id >= row.vocab) continue;
    const uint32_t bit = 1u << (id % 32);
    const bool first = (atomicOr(&bits[id / 32], bit) & bit) == 0;
    if (keep_raw || !first) continue;
    float x = finite(logits[id]);
    for (int j = 0; j < choice.bias_count; ++j) {
      if (row.bias_ids[j] == id) x += row.bias_values[j];
    }
    logits[id] = x;
  }
  __syncthreads();
  if (!keep_raw) return;
  row.bias_bits = bits;
  row.changed = true;
}

__device__ Row make_row(const SampleArgs& args, int index) {
  Row row;
  row.vocab = args.vocab;
  row.choice = args.rows[index];
  row.logits = args.logits + static_cast<int64_t>(index) * args.vocab;
  const SampleRow& choice = row.choice;
  const int mask_words = (args.vocab + 31) / 32;
  row.mask = choice.mask_slot >= 0
                 ? args.allowed_masks + static_cast<int64_t>(choice.mask_slot) * mask_words
                 : nullptr;
  row.counts = choice.count_slot >= 0
                   ? args.token_counts + static_cast<int64_t>(choice.count_slot) * args.vocab
                   : nullptr;
  row.bias_ids = args.bias_ids + choice.bias_begin;
  row.bias_values = args.bias_values + choice.bias_begin;
  row.bias_bits = nullptr;
  row.aligned = args.vocab % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
  row.changed = row.mask != nullptr || row.counts != nullptr;
  return row;
}

// Grid [rows]. Shared memory: Shared, a sum a segment, a bit a token.
__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(const __grid_constant__ SampleArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  auto* segment_sums = reinterpret_cast<double*>(dynamic_shared + sizeof(Shared));
  const int index = static_cast<int>(blockIdx.x);
  Row row = make_row(args, index);
  const SampleRow& choice = row.choice;
  const bool logprobs =
      choice.num_logprobs >= 0 && (args.token_logprobs != nullptr || args.token_ranks != nullptr ||
                                   args.top_ids != nullptr || args.top_logprobs != nullptr);
  if (choice.given_token >= 0) {
    if (threadIdx.x == 0) args.tokens[index] = choice.given_token;
    if (logprobs) write_logprobs(args, row, index, choice.given_token, shared, segment_sums);
    return;
  }
  if (choice.bias_count > 0) {
    const int segments = (args.vocab + kSegment - 1) / kSegment;
    add_biases(row, const_cast<float*>(row.logits),
               reinterpret_cast<uint32_t*>(segment_sums + segments), logprobs);
  }

  Best mine{-INFINITY, INT32_MAX};
  const auto take = [&](int32_t id, float key) {
    if (key > mine.key) mine = {key, id};
  };
  if (choice.temperature <= 0 && !row.changed) {
    const auto raw = [](int32_t, float logit) { return fmaxf(logit, -INFINITY); };
    row.aligned ? walk_vectors(row, raw, take, [](int) {}) : walk<4>(row, raw, take, [](int) {});
  } else {
    for_tokens(row, take);
  }
  const Best best = block_best(mine, shared);
  int32_t token = best.key == -INFINITY ? -1 : best.id;
  if (choice.temperature > 0 && best.key != -INFINITY)
    token = draw(row, best, mine.key, shared, segment_sums);
  __syncthreads();
  if (threadIdx.x == 0) {
    args.tokens[index] = token;
    if (choice.count_slot >= 0 && token >= 0)
      ++args.token_counts[static_cast<int64_t>(choice.count_slot) * args.vocab + token];
  }
  if (logprobs) write_logprobs(args, row, index, token, shared, segment_sums);
}

}  // namespace

size_t sample_kernel_workspace_bytes(const Backend::Limits&, const CudaContext&) { return 0; }

void launch_sample(const SampleArgs& args, const CudaContext& context, cudaStream_t stream) {
  if (args.num_rows == 0) return;
  if ((args.top_ids != nullptr || args.top_logprobs != nullptr) && args.max_logprobs > kListSize) {
    kernel_lacks("sample", "max_logprobs", args.max_logprobs, "up to 8192");
  }
  static_assert(sizeof(Shared) % sizeof(double) == 0);
  const size_t shared_bytes =
      sizeof(Shared) + sizeof(double) * static_cast<size_t>(num_parts(args.vocab, kSegment)) +
      sizeof(uint32_t) * static_cast<size_t>(num_parts(args.vocab, 32));
  if (shared_bytes > context.max_shared_bytes) {
    kernel_lacks("sample", "vocab", args.vocab, "vocabularies whose bit set fits in shared memory");
  }
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(context.max_shared_bytes)));
  sample_kernel<<<args.num_rows, kThreads, shared_bytes, stream>>>(args);
  ZIPAGE_CUDA_CHECK_LAUNCH("sample");
}

}  // namespace zipage
