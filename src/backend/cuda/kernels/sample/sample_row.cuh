// What the sampler's passes over a row share: how a token's key is made, walks over the vocabulary,
// reductions in a fixed order, and the short list of the best.
#pragma once

#include <cfloat>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/ops/sampling.h"

namespace zipage::sampler {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kUnroll = 32;
constexpr int kSegment = 32 * kUnroll;  // tokens a warp reads at a time
constexpr int kListSize = 8192;
constexpr int kListAim =
    256;  // candidates for top-p to begin with; then all threads' best: about 3,000
constexpr int kDigitBins = 2048;
constexpr uint32_t kInPrompt = 1u << 31;
constexpr float kFixedPoint =
    4096.0f;  // masses are integers of 2^-44: high word 2^-12, low word the rest
constexpr uint32_t kAnyId = 0x7fffffffu;

// Larger keys have larger ordinals; -0 equals 0, -inf is the least.
__device__ inline uint32_t ordinal(float key) {
  const uint32_t bits = __float_as_uint(key + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_ordinal(uint32_t value) {
  return __uint_as_float((value & 0x80000000u) != 0 ? value & 0x7fffffffu : ~value);
}
// NaN becomes -inf, +inf the largest finite number.
__device__ inline float finite(float x) { return fminf(fmaxf(x, -INFINITY), FLT_MAX); }

struct Shared {
  unsigned long long list[kListSize];  // (~ordinal, id): ascending is best first
  uint32_t bins[2][kDigitBins];        // masses by digit: low and high words
  double doubles[kWarps + 1];
  float floats[kWarps + 1];
  uint32_t words[kWarps + 1];
  uint32_t list_count;
  uint32_t found[4];
};

struct Row {
  const float* logits;
  int32_t vocab;
  SampleRow choice;
  const uint32_t* mask;    // or null
  const uint32_t* counts;  // or null
  const int32_t* bias_ids;
  const float* bias_values;
  const uint32_t* bias_bits;  // shared memory, or null: no bias is left to add
  bool changed;               // any of these: keys are not the logits
  bool aligned;               // rows begin at multiples of 16 bytes

  // The key of a token: its logit after allowed tokens, bias and penalties.
  __device__ __forceinline__ float key(int32_t id, float logit) const {
    float x = finite(logit);
    if (mask != nullptr && (__ldg(mask + id / 32) >> (id % 32) & 1u) == 0) x = -INFINITY;
    if (bias_bits != nullptr && (bias_bits[id / 32] >> (id % 32) & 1u) != 0) {
      for (int32_t i = 0; i < choice.bias_count; ++i) {
        if (bias_ids[i] == id) x += bias_values[i];
      }
    }
    if (counts != nullptr) {
      const uint32_t count = __ldg(counts + id);
      if (count != 0) {
        const uint32_t times = count & ~kInPrompt;
        x = x > 0 ? x / choice.repetition_penalty : __fmul_rn(x, choice.repetition_penalty);
        if (times > 0) {
          x = __fsub_rn(x, __fmul_rn(choice.frequency_penalty, static_cast<float>(times)));
          x = __fsub_rn(x, choice.presence_penalty);
        }
      }
    }
    return finite(x);
  }
};

// How a pass sees a token: as the sampler does, or the raw logit.
struct Keys {
  const Row& row;
  __device__ float operator()(int32_t id, float logit) const { return row.key(id, logit); }
};
struct RawKeys {
  __device__ float operator()(int32_t, float logit) const { return finite(logit); }
};

// Calls body(id, key) for all tokens; end(segment) after each segment of a warp. kBatch loads are
// in flight at a time.
template <int kBatch, typename Key, typename Body, typename End>
__device__ __forceinline__ void walk(const Row& row, Key&& key, Body&& body, End&& end) {
  const int lane = threadIdx.x % 32;
  const int segments = (row.vocab + kSegment - 1) / kSegment;
#pragma unroll 1
  for (int segment = threadIdx.x / 32; segment < segments; segment += kWarps) {
#pragma unroll 1
    for (int first = segment * kSegment + lane; first < (segment + 1) * kSegment;
         first += 32 * kBatch) {
      float x[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        x[j] = first + 32 * j < row.vocab ? row.logits[first + 32 * j] : -INFINITY;
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int id = first + 32 * j;
        if (id < row.vocab) body(id, key(id, x[j]));
      }
    }
    end(segment);
  }
}
// The same with 16-byte loads: keys are the logits, and rows are aligned.
template <typename Key, typename Body, typename End>
__device__ __forceinline__ void walk_vectors(const Row& row, Key&& key, Body&& body, End&& end) {
  constexpr int kVectors = kSegment / 128;
  const int lane = threadIdx.x % 32;
  const int segments = (row.vocab + kSegment - 1) / kSegment;
#pragma unroll 1
  for (int segment = threadIdx.x / 32; segment < segments; segment += kWarps) {
    const int first = segment * kSegment + 4 * lane;
    float4 x[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (first + 128 * j < row.vocab)
        x[j] = *reinterpret_cast<const float4*>(row.logits + first + 128 * j);
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int id = first + 128 * j;
      if (id < row.vocab) {
        body(id, key(id, x[j].x));
        body(id + 1, key(id + 1, x[j].y));
        body(id + 2, key(id + 2, x[j].z));
        body(id + 3, key(id + 3, x[j].w));
      }
    }
    end(segment);
  }
}
// The passes that every sampled token needs: many loads in flight when keys are the logits.
template <typename Body, typename End>
__device__ __forceinline__ void for_segments(const Row& row, Body&& body, End&& end) {
  if (row.aligned && !row.changed) {
    walk_vectors(row, RawKeys{}, body, end);
  } else {
    walk<4>(row, Keys{row}, body, end);
  }
}
template <typename Body>
__device__ __forceinline__ void for_tokens(const Row& row, Body&& body) {
  for_segments(row, body, [](int) {});
}
// The rarer passes.
template <typename Key, typename Body>
__device__ __forceinline__ void for_tokens_slowly(const Row& row, Key&& key, Body&& body) {
  walk<2>(row, key, body, [](int) {});
}

__device__ inline double block_total(double x, Shared& shared) {
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.doubles[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += shared.doubles[w];
  return total;
}
struct Best {
  float key;
  int32_t id;
};
// The largest key of the block's threads, the lowest id of equals.
__device__ inline Best block_best(Best mine, Shared& shared) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    const float key = __shfl_xor_sync(kAllLanes, mine.key, step);
    const int32_t id = __shfl_xor_sync(kAllLanes, mine.id, step);
    if (key > mine.key || (key == mine.key && id < mine.id)) mine = {key, id};
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared.floats[threadIdx.x / 32] = mine.key;
    shared.words[threadIdx.x / 32] = static_cast<uint32_t>(mine.id);
  }
  __syncthreads();
  Best best{shared.floats[0], static_cast<int32_t>(shared.words[0])};
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    const Best other{shared.floats[w], static_cast<int32_t>(shared.words[w])};
    if (other.key > best.key || (other.key == best.key && other.id < best.id)) best = other;
  }
  return best;
}

// A lower bound of the `wanted` largest keys: as many threads have seen a key that large.
__device__ inline uint32_t list_floor(float thread_best, int wanted) {
  const uint32_t mine = ordinal(thread_best);
  uint32_t floor = 0;
  for (int bit = 31; bit >= 10; --bit) {
    const uint32_t trial = floor | 1u << bit;
    if (__syncthreads_count(mine >= trial) >= wanted) floor = trial;
  }
  return floor;
}

__device__ inline void append(Shared& shared, uint32_t key, int32_t id) {
  const uint32_t at = atomicAdd(&shared.list_count, 1u);
  if (at < kListSize) {
    shared.list[at] = static_cast<unsigned long long>(~key) << 32 | static_cast<uint32_t>(id);
  }
}
__device__ inline uint32_t list_ordinal(unsigned long long entry) {
  return ~static_cast<uint32_t>(entry >> 32);
}
__device__ inline int32_t list_id(unsigned long long entry) {
  return static_cast<int32_t>(entry & 0xffffffffu);
}

// Bitonic, ascending.
__device__ inline void sort_list(Shared& shared, int count) {
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads)
    shared.list[i] = ~0ull;
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += kThreads) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const unsigned long long a = shared.list[low], b = shared.list[high];
        if ((a > b) == ((low & run) == 0)) shared.list[low] = b, shared.list[high] = a;
      }
    }
  }
  __syncthreads();
}

}  // namespace zipage::sampler
