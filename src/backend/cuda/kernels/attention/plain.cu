// Paged attention without tensor cores: right for every dtype and shape, and in f32 independent of the batch, since each
// (token, head) walks its blocks in table order alone.
//
// Idea: one thread block a (token, query head). For each page block: a thread an entry for the scores, their maximum and sum
// over the thread block, then a thread an element of the head for P V. The online softmax here uses expf, and a maximum a page
// block, so that its f32 results are those of the oracle to rounding.
// Not tuned and not measured: the f32 path serves tests and comparisons, f16 pages and unusual head sizes take it too.
#include "backend/cuda/kernels/attention/attention.h"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"

namespace zipage {

namespace {

constexpr int kThreads = 128;
constexpr int kMaxHeadDim = 256;
constexpr int kMaxPerThread = kMaxHeadDim / kThreads;

struct PlainParams {
  const void* q;
  const std::byte* k;
  const std::byte* v;
  const int32_t* row_of_token;
  const int32_t* row_begin;
  const int32_t* kv_lens;
  const int32_t* block_tables;
  void* out;
  float scale;
  int32_t block_table_stride;
  int32_t num_q_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
};

template <typename T, typename KvT>
__global__ void __launch_bounds__(kThreads) plain_kernel(PlainParams p) {
  extern __shared__ float score[];  // [block_size]
  __shared__ float q_shared[kMaxHeadDim];
  __shared__ BlockReduceShared reduce_shared;
  const int64_t token = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.num_q_heads / p.num_kv_heads);
  const int row = p.row_of_token[token];
  const int row_end = p.row_begin[row + 1];
  // Token j of the row sees entries < kv_len - row_tokens + j + 1.
  const int visible = p.kv_lens[row] - (row_end - static_cast<int>(token)) + 1;
  const int64_t q_place = (token * p.num_q_heads + head) * p.head_dim;
  for (int e = static_cast<int>(threadIdx.x); e < p.head_dim; e += kThreads) {
    q_shared[e] = to_float(static_cast<const T*>(p.q)[q_place + e]);
  }
  __syncthreads();

  float accumulator[kMaxPerThread] = {};
  float maximum = -INFINITY;
  float denominator = 0;
  const int num_blocks = (visible + p.block_size - 1) / p.block_size;
  for (int b = 0; b < num_blocks; ++b) {
    const int64_t block = p.block_tables[static_cast<int64_t>(row) * p.block_table_stride + b];
    const int64_t base = (block * p.num_kv_heads + kv_head) * p.block_size * p.head_dim;
    const KvT* k = reinterpret_cast<const KvT*>(p.k) + base;
    const KvT* v = reinterpret_cast<const KvT*>(p.v) + base;
    const int entries = min(p.block_size, visible - b * p.block_size);
    float local_max = -INFINITY;
    for (int i = static_cast<int>(threadIdx.x); i < entries; i += kThreads) {
      float dot = 0;
      for (int e = 0; e < p.head_dim; ++e) {
        dot = fmaf(q_shared[e], to_float(k[static_cast<int64_t>(i) * p.head_dim + e]), dot);
      }
      score[i] = dot * p.scale;
      local_max = fmaxf(local_max, score[i]);
    }
    const float block_maximum = block_max(local_max, reduce_shared);
    float local_sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < entries; i += kThreads) {
      score[i] = expf(score[i] - block_maximum);
      local_sum += score[i];
    }
    const float block_denominator = block_sum(local_sum, reduce_shared);  // and score[] is complete
    const float new_maximum = fmaxf(maximum, block_maximum);
    const float keep = expf(maximum - new_maximum);
    const float take = expf(block_maximum - new_maximum);
#pragma unroll
    for (int j = 0; j < kMaxPerThread; ++j) {
      const int e = static_cast<int>(threadIdx.x) + j * kThreads;
      if (e >= p.head_dim) continue;
      float partial = 0;
      for (int i = 0; i < entries; ++i) {
        partial = fmaf(score[i], to_float(v[static_cast<int64_t>(i) * p.head_dim + e]), partial);
      }
      accumulator[j] = accumulator[j] * keep + partial * take;
    }
    denominator = denominator * keep + block_denominator * take;
    maximum = new_maximum;
    __syncthreads();  // score[] is free again
  }
#pragma unroll
  for (int j = 0; j < kMaxPerThread; ++j) {
    const int e = static_cast<int>(threadIdx.x) + j * kThreads;
    if (e < p.head_dim) {
      static_cast<T*>(p.out)[q_place + e] =
          from_float<T>(denominator > 0 ? accumulator[j] / denominator : 0.0f);
    }
  }
}

}  // namespace

void launch_paged_attention_plain(const PagedAttentionArgs& args,
                                  const CudaContext&,
                                  cudaStream_t stream) {
  const StepBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_tokens == 0) return;
  if (kv.head_dim > kMaxHeadDim) {
    kernel_lacks("paged_attention", "head_dim", kv.head_dim, "up to 256");
  }
  if (kv.block_size > 8192) {
    kernel_lacks("paged_attention", "block_size", kv.block_size, "up to 8192");
  }
  const LayerKvView& layer = kv.layers[args.layer];
  const PlainParams params{args.q,
                           layer.k,
                           layer.v,
                           batch.row_of_token,
                           batch.row_begin,
                           batch.kv_lens,
                           batch.block_tables,
                           args.out,
                           args.scale,
                           batch.block_table_stride,
                           kv.num_q_heads,
                           kv.num_kv_heads,
                           kv.head_dim,
                           kv.block_size};
  const dim3 grid(static_cast<unsigned>(batch.num_tokens), static_cast<unsigned>(kv.num_q_heads));
  const size_t shared = static_cast<size_t>(kv.block_size) * sizeof(float);
  dispatch_activation(args.dtype, "paged_attention", [&]<typename T>(T) {
    dispatch_kv(kv.dtype, "paged_attention", [&]<typename KvT>(KvT) {
      plain_kernel<T, KvT><<<grid, kThreads, shared, stream>>>(params);
    });
  });
  ZIPAGE_CUDA_CHECK_LAUNCH("paged_attention_plain");
}

}  // namespace zipage
