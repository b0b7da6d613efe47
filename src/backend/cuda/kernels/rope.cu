#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/rope.h"

namespace zipage {

namespace {

constexpr int kWarps = 8;
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

template <typename T>
__device__ inline void store_pack(T* to, const float (&value)[kPack]) {
  Pack<T, kPack> pack;
#pragma unroll
  for (int j = 0; j < kPack; ++j) pack.value[j] = from_float<T>(value[j]);
  *reinterpret_cast<Pack<T, kPack>*>(to) = pack;
}

// One warp a head of a token: norm, rotation, and the stores. Grid [T, ceil(heads / kWarps)].
template <typename T, typename KvT>
__global__ void __launch_bounds__(kWarps * 32) prepare_kernel(PrepareParams p) {
  __shared__ float heads_shared[kWarps][kMaxHeadDim];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t token = blockIdx.x;
  const int num_heads = p.num_q_heads + 2 * p.num_kv_heads;
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp;
  if (head >= num_heads) return;
  const bool is_q = head < p.num_q_heads;
  const bool is_v = head >= p.num_q_heads + p.num_kv_heads;
  const int packs = p.head_dim / kPack;
  const T* from = static_cast<const T*>(p.qkv) + (token * num_heads + head) * p.head_dim;

  float x[kMaxPacks][kPack];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
    const int pack = lane + 32 * i;
    if (pack >= packs) continue;
    const auto raw = reinterpret_cast<const Pack<T, kPack>*>(from)[pack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      x[i][j] = to_float(raw.value[j]);
      squares += x[i][j] * x[i][j];
    }
  }
  const float* norm = is_q ? p.q_norm : p.k_norm;
  if (!is_v) {
    float scale = 1;
    if (norm != nullptr) {
      scale = rsqrtf(warp_sum(squares) / static_cast<float>(p.head_dim) + p.norm_eps);
    }
    float* shared = heads_shared[warp];
#pragma unroll
    for (int i = 0; i < kMaxPacks; ++i) {
      const int pack = lane + 32 * i;
      if (pack >= packs) continue;
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const int e = pack * kPack + j;
        // The normed head is rounded to T as a separate norm's output would be.
        if (norm != nullptr) x[i][j] = to_float(from_float<T>(x[i][j] * scale * norm[e]));
        shared[e] = x[i][j];
      }
    }
    __syncwarp();
    const int half = p.rotary_dim / 2;
    const float* cosines = p.rope_cos_sin + static_cast<int64_t>(p.positions[token]) * p.rotary_dim;
    const float* sines = cosines + half;
#pragma unroll
    for (int i = 0; i < kMaxPacks; ++i) {
      const int pack = lane + 32 * i;
      if (pack >= packs) continue;
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const int e = pack * kPack + j;
        if (e < half) {
          x[i][j] = x[i][j] * cosines[e] - shared[e + half] * sines[e];
        } else if (e < p.rotary_dim) {
          x[i][j] = x[i][j] * cosines[e - half] + shared[e - half] * sines[e - half];
        }
      }
    }
  }

  if (is_q) {
    const int32_t query_slot =
        p.query_slots == nullptr || p.queries == nullptr ? -1 : p.query_slots[token];
    T* q_to = static_cast<T*>(p.q_out) + (token * p.num_q_heads + head) * p.head_dim;
    const int64_t kept = (static_cast<int64_t>(query_slot) * p.num_q_heads + head) * p.head_dim;
#pragma unroll
    for (int i = 0; i < kMaxPacks; ++i) {
      const int pack = lane + 32 * i;
      if (pack >= packs) continue;
      store_pack(q_to + pack * kPack, x[i]);
      if (query_slot < 0) continue;
      const int64_t place = kept + pack * kPack;
      if (p.query_dtype == DType::kF32) {
        store_pack(reinterpret_cast<float*>(p.queries) + place, x[i]);
      } else if (p.query_dtype == DType::kBF16) {
        store_pack(reinterpret_cast<bf16*>(p.queries) + place, x[i]);
      } else {
        store_pack(reinterpret_cast<__half*>(p.queries) + place, x[i]);
      }
    }
    return;
  }
  const int kv_head = head - p.num_q_heads - (is_v ? p.num_kv_heads : 0);
  const int32_t slot = p.kv_slots[token];
  if (slot < 0) return;  // padding
  const int64_t block = slot / p.block_size;
  const int64_t entry = (block * p.num_kv_heads + kv_head) * p.block_size + slot % p.block_size;
  KvT* to = reinterpret_cast<KvT*>(is_v ? p.v : p.k) + entry * p.head_dim;
#pragma unroll
  for (int i = 0; i < kMaxPacks; ++i) {
    const int pack = lane + 32 * i;
    if (pack < packs) store_pack(to + pack * kPack, x[i]);
  }
}

}  // namespace

void launch_attention_prepare(const AttentionPrepareArgs& args,
                              const CudaContext&,
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
                  ceil_div(kv.num_q_heads + 2 * kv.num_kv_heads, kWarps));
  dispatch_activation(args.dtype, "attention_prepare", [&]<typename T>(T) {
    dispatch_kv(kv.dtype, "attention_prepare", [&]<typename KvT>(KvT) {
      prepare_kernel<T, KvT><<<grid, kWarps * 32, 0, stream>>>(params);
    });
  });
  ZIPAGE_CUDA_CHECK_LAUNCH("attention_prepare");
}

}  // namespace zipage
