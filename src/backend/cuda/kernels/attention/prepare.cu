// attention_prepare: RMS norm of the q and k heads, RoPE, and the stores of K and V to their pages and of queries to the query
// cache of a compression slot.
//
// Idea: a warp has one token and kHeads heads of it, all loads in flight together; a head is rotated through shared memory,
// since any rotary_dim is taken. A step of few rows does this inside attend.cu instead.
//
// Cost at 8,192 tokens, 32 query and 8 KV heads, head_dim 128, bf16: 201 MB, 0.047 ms at 4.27 TB/s.
// Measured (H200, 2026-11-29, script/bench-gpu elementwise): 0.129 ms, 37 %; 157 tokens 0.0055 ms. A warp reads little and
// waits for position, table and head in turn.
#include "backend/cuda/kernels/attention/prepare.h"
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"

namespace zipage {

namespace {

constexpr int kWarps = 8;
constexpr int kHeads = 3;     // of a warp, their loads in flight together
constexpr int kPack = 4;      // elements a lane moves at once
constexpr int kMaxPacks = 2;  // a lane, so that head_dim <= 256
constexpr int kMaxHeadDim = 32 * kPack * kMaxPacks;

// What a kernel needs of AttentionPrepareArgs, by value.
struct PrepareParams {
  const void* qkv;
  const float* q_norm;
  const float* k_norm;
  const float* rope_cos_sin;
  const int32_t* positions;
  const int32_t* kv_slots;
  const int32_t* query_slots;
  void* q_out;
  std::byte* k;
  std::byte* v;
  std::byte* queries;
  DType query_dtype;
  float norm_eps;
  int32_t rotary_dim;
  int32_t num_q_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
};

// x, the lane's packs of a head, becomes its norm times `norm`.
template <typename T>
__device__ inline void norm_head(
    const PrepareParams& p, const float* norm, int lane, int packs, float (&x)[kMaxPacks][kPack]) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) squares += x[i][j] * x[i][j];
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(p.head_dim) + p.norm_eps);
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
    const int pack = lane + 32 * i;
    if (pack >= packs) continue;
    const auto w = reinterpret_cast<const Pack<float, kPack>*>(norm)[pack];
    // The normed head is rounded to T as a separate norm's output would be.
#pragma unroll
    for (int j = 0; j < kPack; ++j) x[i][j] = to_float(from_float<T>(x[i][j] * scale * w.value[j]));
  }
}

// Rotates x, the lane's packs of a head. `shared` holds a head.
__device__ inline void rotate_head(const PrepareParams& p,
                                   const float* cosines,
                                   int lane,
                                   int packs,
                                   float* shared,
                                   float (&x)[kMaxPacks][kPack]) {
  __syncwarp();  // the head before this one has been read
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
    const int pack = lane + 32 * i;
    if (pack < packs) store_pack(shared + pack * kPack, x[i]);
  }
  __syncwarp();
  const int half = p.rotary_dim / 2;
  const float* sines = cosines + half;
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
    const int e = (lane + 32 * i) * kPack;
    if (e >= p.rotary_dim || e >= p.head_dim) continue;
    if (half % kPack == 0) {
      const bool low = e < half;
      const int angle = low ? e : e - half;
      const auto other =
          *reinterpret_cast<const Pack<float, kPack>*>(shared + (low ? e + half : e - half));
      const auto c = *reinterpret_cast<const Pack<float, kPack>*>(cosines + angle);
      const auto s = *reinterpret_cast<const Pack<float, kPack>*>(sines + angle);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        x[i][j] = x[i][j] * c.value[j] + (low ? -other.value[j] : other.value[j]) * s.value[j];
      }
      continue;
    }
    for (int j = 0; j < kPack; ++j) {
      const int place = e + j;
      if (place < half) {
        x[i][j] = x[i][j] * cosines[place] - shared[place + half] * sines[place];
      } else if (place < p.rotary_dim) {
        x[i][j] = x[i][j] * cosines[place - half] + shared[place - half] * sines[place - half];
      }
    }
  }
}

// Where a head goes: q to q_out and the query cache, k and v to their page.
template <typename T, typename KvT>
__device__ inline void store_head(const PrepareParams& p,
                                  int64_t token,
                                  int head,
                                  int lane,
                                  int packs,
                                  int32_t kv_slot,
                                  int32_t query_slot,
                                  const float (&x)[kMaxPacks][kPack]) {
  if (head < p.num_q_heads) {
    T* q_to = static_cast<T*>(p.q_out) + (token * p.num_q_heads + head) * p.head_dim;
    const int64_t kept = (static_cast<int64_t>(query_slot) * p.num_q_heads + head) * p.head_dim;
#pragma unroll
    for (int i = 0; i < kMaxPacks; ++i) {
      const int pack = lane + 32 * i;
      if (pack >= packs) continue;
      store_pack(q_to + pack * kPack, x[i]);
      if (query_slot < 0) continue;
      store_pack(p.queries, p.query_dtype, kept + pack * kPack, x[i]);
    }
    return;
  }
  const bool is_v = head >= p.num_q_heads + p.num_kv_heads;
  const int kv_head = head - p.num_q_heads - (is_v ? p.num_kv_heads : 0);
  if (kv_slot < 0) return;  // padding
  const int64_t block = kv_slot / p.block_size;
  const int64_t entry = (block * p.num_kv_heads + kv_head) * p.block_size + kv_slot % p.block_size;
  KvT* to = reinterpret_cast<KvT*>(is_v ? p.v : p.k) + entry * p.head_dim;
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
    const int pack = lane + 32 * i;
    if (pack < packs) store_pack(to + pack * kPack, x[i]);
  }
}

// One token and kHeads heads of it a warp: norm, rotation, and the stores. Grid [T, ceil(heads /
// (kWarps * kHeads))].
template <typename T, typename KvT>
__global__ void __launch_bounds__(kWarps * 32) prepare_kernel(PrepareParams p) {
  __shared__ alignas(16) float heads_shared[kWarps][kMaxHeadDim];
  // Before the next kernels start to load, behind which these would queue.
  if (const int line = static_cast<int>(threadIdx.x) * 32; line < p.head_dim) {
    if (p.q_norm != nullptr) prefetch_l2(p.q_norm + line);
    if (p.k_norm != nullptr) prefetch_l2(p.k_norm + line);
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t token = blockIdx.x;
  const int num_heads = p.num_q_heads + 2 * p.num_kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * kWarps * kHeads + warp;
  const int packs = p.head_dim / kPack;

  Pack<T, kPack> raw[kHeads][kMaxPacks];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first_head + h * kWarps;
    const auto* from = reinterpret_cast<const Pack<T, kPack>*>(
        static_cast<const T*>(p.qkv) + (token * num_heads + head) * p.head_dim);
#pragma unroll
    for (int i = 0; i < kMaxPacks; ++i) {
      if (head < num_heads && lane + 32 * i < packs) raw[h][i] = from[lane + 32 * i];
    }
  }
  // Everything that is read by token starts together with the heads.
  const int32_t kv_slot = p.kv_slots[token];
  const int32_t query_slot =
      p.query_slots == nullptr || p.queries == nullptr ? -1 : p.query_slots[token];
  const float* cosines = p.rope_cos_sin + static_cast<int64_t>(p.positions[token]) * p.rotary_dim;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first_head + h * kWarps;
    if (head >= num_heads) break;
    float x[kMaxPacks][kPack];
#pragma unroll
    for (int i = 0; i < kMaxPacks; ++i) {
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        x[i][j] = lane + 32 * i < packs ? to_float(raw[h][i].value[j]) : 0.0f;
    }
    if (head < p.num_q_heads + p.num_kv_heads) {
      const float* norm = head < p.num_q_heads ? p.q_norm : p.k_norm;
      if (norm != nullptr) norm_head<T>(p, norm, lane, packs, x);
      rotate_head(p, cosines, lane, packs, heads_shared[warp], x);
    }
    store_head<T, KvT>(p, token, head, lane, packs, kv_slot, query_slot, x);
  }
}

}  // namespace

void launch_attention_prepare(const AttentionPrepareArgs& args,
                              const CudaContext& context,
                              cudaStream_t stream) {
  const StepBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_tokens == 0) return;
  if (kv.head_dim % kPack != 0 || kv.head_dim > kMaxHeadDim) {
    kernel_lacks("attention_prepare", "head_dim", kv.head_dim, "multiples of 4 up to 256");
  }
  const LayerKvView& layer = kv.layers[args.layer];
  const PrepareParams params{args.qkv,        args.q_norm,     args.k_norm,       args.rope_cos_sin,
                             batch.positions, batch.kv_slots,  batch.query_slots, args.q_out,
                             layer.k,         layer.v,         layer.queries,     kv.query_dtype,
                             args.norm_eps,   args.rotary_dim, kv.num_q_heads,    kv.num_kv_heads,
                             kv.head_dim,     kv.block_size};
  const dim3 grid(static_cast<unsigned>(batch.num_tokens),
                  num_parts(kv.num_q_heads + 2 * kv.num_kv_heads, kWarps * kHeads));
  dispatch_activation(args.dtype, "attention_prepare", [&]<typename T>(T) {
    dispatch_kv(kv.dtype, "attention_prepare", [&]<typename KvT>(KvT) {
      ZIPAGE_CUDA_CHECK(launch_kernel(prepare_kernel<T, KvT>, grid, dim3(kWarps * 32), 0, stream,
                                      context.early_start(), params));
    });
  });
}

}  // namespace zipage
