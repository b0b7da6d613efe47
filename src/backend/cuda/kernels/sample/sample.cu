// The sampler: one block a row, in the order of operations of backend/ops/sampling.h. The
// vocabulary is never sorted: the best tokens are collected into a short list (a bound for them
// comes with the maximum), and only when the list does not decide - flat distributions, large
// top-k, typical-p - the cut is found digit by digit of the keys. Logits are only read, except for
// biases. Sums run in a fixed order or in integers: a row's token depends on the row alone.
#include <cfloat>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/sample/sample.h"
#include "backend/cuda/kernels/sample/sample_row.cuh"
#include "sampling/philox.h"

namespace zipage {
namespace {

using namespace sampler;  // NOLINT: this file's own

// The lowest id at which the running sum of mass(id, key) passes fraction * (the sum of all).
template <typename Mass>
__device__ int32_t
locate(const Row& row, double fraction, Shared& shared, double* segment_sums, Mass&& mass) {
  const int lane = threadIdx.x % 32;
  float sum = 0;
  for_segments(
      row, [&](int32_t id, float key) { sum += mass(id, key); },
      [&](int segment) {
        const double total = warp_total(static_cast<double>(sum));
        if (lane == 0) segment_sums[segment] = total;
        sum = 0;
      });
  __syncthreads();
  if (threadIdx.x < 32) {
    const int segments = (row.vocab + kSegment - 1) / kSegment;
    double total = 0;
    int last_segment = 0;
    for (int base = 0; base < segments; base += 32) {
      const double x = base + lane < segments ? segment_sums[base + lane] : 0.0;
      total += warp_total(x);
      const uint32_t some = __ballot_sync(0xffffffffu, x > 0);
      if (some != 0) last_segment = base + 31 - __clz(static_cast<int>(some));
    }
    const double target = fraction * total;
    double before = 0;
    int segment = last_segment;
    for (int base = 0; base < segments; base += 32) {
      const double x = base + lane < segments ? segment_sums[base + lane] : 0.0;
      const double running = before + warp_running(x);
      const uint32_t passed = __ballot_sync(0xffffffffu, running > target);
      if (passed != 0) {
        const int at = __ffs(static_cast<int>(passed)) - 1;
        segment = base + at;
        before = __shfl_sync(0xffffffffu, running - x, at);
        break;
      }
      before = __shfl_sync(0xffffffffu, running, 31);
    }
    int32_t result = -1, last = 0;
    for (int j = 0; j < kUnroll && result < 0; ++j) {
      const int id = segment * kSegment + 32 * j + lane;
      const double x =
          id < row.vocab ? static_cast<double>(mass(id, row.key(id, row.logits[id]))) : 0.0;
      const double running = before + warp_running(x);
      const uint32_t passed = __ballot_sync(0xffffffffu, x > 0 && running > target);
      const uint32_t some = __ballot_sync(0xffffffffu, x > 0);
      if (some != 0) last = segment * kSegment + 32 * j + 31 - __clz(static_cast<int>(some));
      if (passed != 0) result = segment * kSegment + 32 * j + __ffs(static_cast<int>(passed)) - 1;
      before = __shfl_sync(0xffffffffu, running, 31);
    }
    // The segment's sum was rounded to more than the running one: the target lies at its end.
    if (lane == 0) shared.found[0] = static_cast<uint32_t>(result >= 0 ? result : last);
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
  using Fixed = unsigned long long;
  const Fixed wanted = static_cast<Fixed>(ceil(target * 0x1p44));
  Fixed before = 0;
  uint32_t prefix = 0;
  const int lane = threadIdx.x % 32;
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
      const uint32_t bin = value >> shift & ((1u << width) - 1);
      const float scaled = m * kFixedPoint;
      auto high = static_cast<uint32_t>(scaled);
      const auto low = static_cast<uint32_t>((scaled - static_cast<float>(high)) * 0x1p32f);
      const uint32_t old = atomicAdd(&shared.bins[0][bin], low);
      high += old + low < old ? 1u : 0u;
      if (high != 0) atomicAdd(&shared.bins[1][bin], high);
    });
    __syncthreads();
    if (threadIdx.x < 32) {
      // From the largest digit down, 64 bins a lane.
      constexpr int kLaneBins = kDigitBins / 32;
      const int top = kDigitBins - 1 - lane * kLaneBins;
      Fixed mine = 0;
      for (int i = 0; i < kLaneBins; ++i) {
        mine += static_cast<Fixed>(shared.bins[1][top - i]) << 32 | shared.bins[0][top - i];
      }
      Fixed running = mine;
#pragma unroll
      for (int step = 1; step < 32; step <<= 1) {
        const Fixed other = __shfl_up_sync(0xffffffffu, running, step);
        if (lane >= step) running += other;
      }
      const uint32_t reached = __ballot_sync(0xffffffffu, before + running >= wanted && mine > 0);
      if (reached != 0 && lane == __ffs(static_cast<int>(reached)) - 1) {
        Fixed sum = before + running - mine;
        for (int i = 0; i < kLaneBins; ++i) {
          const Fixed x =
              static_cast<Fixed>(shared.bins[1][top - i]) << 32 | shared.bins[0][top - i];
          if (x > 0 && sum + x >= wanted) {
            shared.found[0] = 1;
            shared.found[1] = static_cast<uint32_t>(top - i);
            shared.found[2] = static_cast<uint32_t>(sum);
            shared.found[3] = static_cast<uint32_t>(sum >> 32);
            break;
          }
          sum += x;
        }
      }
    }
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
    const double running = before + warp_running(x);
    const uint32_t reached = __ballot_sync(
        0xffffffffu, base + lane < count && (pass ? running > target : running >= target));
    if (result == 0 && reached != 0) result = base + __ffs(static_cast<int>(reached));
    before = __shfl_sync(0xffffffffu, running, 31);
  }
  *sum = before;
  return result;
}

// Draws a token; `best` is the most likely one, `thread_best` the largest key that this thread has
// seen.
__device__ int32_t
draw(const Row& row, Best best, float thread_best, Shared& shared, double* segment_sums) {
  const SampleRow& choice = row.choice;
  const float top = best.key;
  const float scale = fminf(1.0f / choice.temperature, 1e30f);
  const double uniform = philox_uniform(choice.seed, choice.step);
  // min-p: p < min_p * p_max, and the weight of the most likely token is 1.
  const auto weight = [&](float key) {
    const float w = expf((key - top) * scale);
    return w < choice.min_p ? 0.0f : w;
  };
  const bool limits_count = choice.top_k > 0 && choice.top_k < row.vocab;
  const bool limits_mass = choice.top_p < 1;
  const bool typical = choice.typical_p < 1;
  if (!limits_count && !limits_mass && !typical) {
    return locate(row, uniform, shared, segment_sums,
                  [&](int32_t, float key) { return weight(key); });
  }

  const int attempts = typical || (limits_count && choice.top_k > kThreads) ? 0
                       : limits_count                                       ? 1
                                                                            : 2;
#pragma unroll 1
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const int aim = attempt == 0 ? kListAim : kThreads;
    const uint32_t floor = list_floor(thread_best, limits_count ? choice.top_k : aim);
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
    if (count <= kListSize) {
      sort_list(shared, count);
      if (threadIdx.x < 32) {
        int kept = count;
        if (limits_count && count > choice.top_k) {  // ties with the last stay
          const uint32_t last = list_ordinal(shared.list[choice.top_k - 1]);
          kept = choice.top_k;
          while (kept < count && list_ordinal(shared.list[kept]) == last) ++kept;
        }
        double sum = total;
        if (limits_count) list_prefix(shared, kept, 0, false, &sum, weight);
        if (limits_mass) {
          double ignored;
          const int prefix = list_prefix(shared, kept, static_cast<double>(choice.top_p) * sum,
                                         false, &ignored, weight);
          if (prefix > 0) {
            kept = prefix;
          } else if (!limits_count) {
            kept = 0;  // the list is too short
          }
        }
        if (threadIdx.x == 0) shared.found[0] = static_cast<uint32_t>(kept);
      }
      __syncthreads();
      const auto kept = static_cast<int>(shared.found[0]);
      if (kept > 0) {
        // By id: the words change places.
        for (int i = threadIdx.x; i < kept; i += kThreads)
          shared.list[i] = shared.list[i] << 32 | shared.list[i] >> 32;
        __syncthreads();
        sort_list(shared, kept);
        for (int i = threadIdx.x; i < kept; i += kThreads)
          shared.list[i] = shared.list[i] << 32 | shared.list[i] >> 32;
        __syncthreads();
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
      __syncthreads();
    }
  }

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
  if (limits_count) {
    cut = find_cut(row, Keys{row}, choice.top_k, true, shared, segment_sums, by_key,
                   [&](int32_t, float key) { return weight(key) > 0 ? 1.0f : 0.0f; });
  }
  if (limits_mass) {
    const double total = total_of(kept_weight);
    cut = find_cut(row, Keys{row}, static_cast<double>(choice.top_p) * total, false, shared,
                   segment_sums, by_key, kept_weight);
  }
  if (!typical) return locate(row, uniform, shared, segment_sums, kept_weight);

  // Tokens whose information -log p is nearest the entropy, until their mass is typical_p; ties
  // stay.
  const double total = total_of(kept_weight);
  const double log_total = log(total);
  double entropy = 0;
  for_tokens_slowly(row, Keys{row}, [&](int32_t id, float key) {
    const float w = kept_weight(id, key);
    if (w > 0)
      entropy +=
          static_cast<double>(w) / total * (static_cast<double>((top - key) * scale) + log_total);
  });
  entropy = block_total(entropy, shared);
  const auto offset = static_cast<float>(log_total - entropy);
  const auto by_information = [&](int32_t, float key) {
    return ordinal(-fabsf((top - key) * scale + offset));
  };
  const Cut typical_cut = find_cut(row, Keys{row}, static_cast<double>(choice.typical_p) * total,
                                   true, shared, segment_sums, by_information, kept_weight);
  return locate(row, uniform, shared, segment_sums, [&](int32_t id, float key) {
    return typical_cut.keeps(by_information(id, key), id) ? kept_weight(id, key) : 0.0f;
  });
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
      wanted > 0 && wanted <= kThreads ? list_floor(mine.key, wanted) : 0xffffffffu;
  if (threadIdx.x == 0) shared.list_count = 0;
  __syncthreads();
  const float chosen = finite(row.logits[token]);
  double sum = 0, better = 0;
  for_tokens_slowly(row, RawKeys{}, [&](int32_t id, float key) {
    if (!nothing) sum += static_cast<double>(expf(key - best.key));
    if (key > chosen || (key == chosen && id < token)) better += 1;
    if (ordinal(key) >= floor) append(shared, ordinal(key), id);
  });
  sum = block_total(sum, shared);
  better = block_total(better, shared);
  const double log_sum = nothing ? 0 : log(sum);
  const auto logprob = [&](float key) {
    return nothing ? -INFINITY
                   : static_cast<float>(static_cast<double>(key) - static_cast<double>(best.key) -
                                        log_sum);
  };
  if (threadIdx.x == 0) {
    if (args.token_logprobs != nullptr) args.token_logprobs[index] = logprob(chosen);
    if (args.token_ranks != nullptr) args.token_ranks[index] = static_cast<int32_t>(better) + 1;
  }
  if (!wants_list) return;
  if (wanted > 0) {
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
  for (int i = threadIdx.x; i < args.max_logprobs; i += kThreads) {
    const int64_t at = static_cast<int64_t>(index) * args.max_logprobs + i;
    const int32_t id = i < wanted ? list_id(shared.list[i]) : -1;
    if (args.top_ids != nullptr) args.top_ids[at] = id;
    if (args.top_logprobs != nullptr)
      args.top_logprobs[at] = id >= 0 ? logprob(finite(row.logits[id])) : -INFINITY;
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(const __grid_constant__ SampleArgs args) {
  extern __shared__ __align__(
      16) unsigned char dynamic_shared[];  // Shared, a sum a segment, a bit a token
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  auto* segment_sums = reinterpret_cast<double*>(dynamic_shared + sizeof(Shared));
  const int index = static_cast<int>(blockIdx.x);
  Row row;
  row.vocab = args.vocab;
  row.choice = args.rows[index];
  float* logits = const_cast<float*>(args.logits) + static_cast<int64_t>(index) * args.vocab;
  row.logits = logits;
  const SampleRow& choice = row.choice;
  row.mask = choice.mask_slot >= 0 ? args.allowed_masks + static_cast<int64_t>(choice.mask_slot) *
                                                              ((args.vocab + 31) / 32)
                                   : nullptr;
  row.counts = choice.count_slot >= 0
                   ? args.token_counts + static_cast<int64_t>(choice.count_slot) * args.vocab
                   : nullptr;
  row.bias_ids = args.bias_ids + choice.bias_begin;
  row.bias_values = args.bias_values + choice.bias_begin;
  row.bias_bits = nullptr;
  const bool logprobs =
      choice.num_logprobs >= 0 && (args.token_logprobs != nullptr || args.token_ranks != nullptr ||
                                   args.top_ids != nullptr || args.top_logprobs != nullptr);
  if (choice.given_token >= 0) {
    if (threadIdx.x == 0) args.tokens[index] = choice.given_token;
    if (logprobs) write_logprobs(args, row, index, choice.given_token, shared, segment_sums);
    return;
  }
  if (choice.bias_count > 0) {
    const int segments = (args.vocab + kSegment - 1) / kSegment, words = (args.vocab + 31) / 32;
    auto* bits = reinterpret_cast<uint32_t*>(segment_sums + segments);
    for (int i = threadIdx.x; i < words; i += kThreads) bits[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < choice.bias_count; i += kThreads) {
      const int32_t id = row.bias_ids[i];
      if (id < 0 || id >= args.vocab) continue;
      const uint32_t bit = 1u << (id % 32);
      const bool first = (atomicOr(&bits[id / 32], bit) & bit) == 0;
      if (logprobs || !first) continue;
      // Nobody asks for the raw logits: the biased one takes its place, once for all entries of the
      // id.
      float x = finite(logits[id]);
      for (int j = 0; j < choice.bias_count; ++j) {
        if (row.bias_ids[j] == id) x += row.bias_values[j];
      }
      logits[id] = x;
    }
    __syncthreads();
    if (logprobs) row.bias_bits = bits;
  }

  Best mine{-INFINITY, INT32_MAX};
  const auto take = [&](int32_t id, float key) {
    if (key > mine.key) mine = {key, id};
  };
  row.aligned = args.vocab % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
  row.changed = row.mask != nullptr || row.counts != nullptr || row.bias_bits != nullptr;
  if (choice.temperature <= 0 && !row.changed) {
    const auto raw = [](int32_t, float logit) { return fmaxf(logit, -INFINITY); };
    row.aligned ? walk_vectors(row, raw, take, [](int) {}) : walk<4>(row, raw, take, [](int) {});
  } else {
    for_tokens(row, take);
  }
  const Best best = block_best(mine, shared);
  int32_t token = best.key == -INFINITY ? 0 : best.id;
  if (choice.temperature > 0 && best.key != -INFINITY)
    token = draw(row, best, mine.key, shared, segment_sums);
  __syncthreads();
  if (threadIdx.x == 0) {
    args.tokens[index] = token;
    if (choice.count_slot >= 0)
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
  const size_t shared_bytes = sizeof(Shared) +
                              sizeof(double) * static_cast<size_t>(ceil_div(args.vocab, kSegment)) +
                              sizeof(uint32_t) * static_cast<size_t>(ceil_div(args.vocab, 32));
  if (shared_bytes > context.max_shared_bytes) {
    kernel_lacks("sample", "vocab", args.vocab, "vocabularies whose bit set fits in shared memory");
  }
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(context.max_shared_bytes)));
  sample_kernel<<<args.num_rows, kThreads, shared_bytes, stream>>>(args);
  ZIPAGE_CUDA_CHECK_LAUNCH("sample");
}

}  // namespace zipage
