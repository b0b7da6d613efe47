// attend(): norms of q and k, RoPE, the new KV entry and attention of a decode step with few rows (at most 8), bf16, in one
// kernel. So little is read that three kernels would mostly wait for one another.
//
// Idea: the entries of a (row, KV head) are dealt to up to kMaxSplits blocks in runs of units of 16; a warp takes a unit at a
// time, K and V in registers. What earlier steps left in the pages is loaded before the GEMM ahead of this kernel has finished
// (programmatic dependent launch); only q and the new entry wait for it. Each block prepares the queries of its group again.
// The last block of a (row, KV head) to finish adds the pieces of all, in order. Little shared memory is used, so that the
// GEMM behind this kernel can take its place on the SM and load weights meanwhile.
// Tensor cores: entries are the 16 rows of a unit, the group's queries (at most 8) the 8 columns: S^T = K Q^T, O^T += V^T P^T.
// Which element of a head a lane has is chosen so that its loads are 16 bytes wide; sums over k do not mind the order.
// g = lane / 4, t = lane % 4.
//
// Cost of one row of 1,700 entries, 8 KV heads, head_dim 128: 7 MB, 1.6 us at 4.27 TB/s: latency decides.
// Measured (H200, 2026-11-30, bench_ops_cuda layer): a layer of Qwen3-8B at 1,700 entries 111 us, with the three kernels 124.
// In the step of one request: 0.38 ms for 36 layers.
#include "backend/cuda/kernels/attention/attend.h"
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"

namespace zipage {

namespace {

constexpr int kMaxRows = 8;
constexpr int kDim = 128;
constexpr int kPack = kDim / 32;  // elements of a head a lane prepares
constexpr int kMaxGroup = 8;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kUnit = 16;  // entries
constexpr int kMaxSplits = 64;
constexpr int kPieces = 16;  // whose loads are in flight together when they are added

struct AttendParams {
  const bf16* qkv;  // [rows, num_q_heads + 2 * num_kv_heads, kDim]
  const float* q_norm;
  const float* k_norm;
  const float* rope_cos_sin;
  const int32_t* positions;
  const int32_t* kv_slots;
  const int32_t* query_slots;  // null: no query is kept
  const int32_t* kv_lens;
  const int32_t* block_tables;
  bf16* k;  // pages of the layer
  bf16* v;
  std::byte* queries;
  bf16* out;           // [rows, num_q_heads, kDim]
  float* partials;     // [rows, num_kv_heads, splits, group * (kDim + 2)]
  uint32_t* counters;  // [rows, num_kv_heads]
  DType query_dtype;
  float norm_eps;
  float scale_log2;  // scale * log2(e)
  int32_t num_kv_heads;
  int32_t group;
  int32_t block_size;
  int32_t block_table_stride;
};

// What a block works on.
struct Share {
  int row;
  int head;
  int split;
  int splits;  // that have units
  int kv_len;
  int begin, end;  // units
  __device__ int units() const { return (kv_len + kUnit - 1) / kUnit; }
  __device__ bool has_new_entry() const { return split == splits - 1; }
};

__device__ inline Share find_share(const AttendParams& p) {
  Share s;
  s.row = static_cast<int>(blockIdx.z);
  s.head = static_cast<int>(blockIdx.y);
  s.split = static_cast<int>(blockIdx.x);
  s.kv_len = p.kv_lens[s.row];
  const int units = s.units();
  const int most = (units + kWarps - 1) / kWarps;  // a unit for every warp
  const auto blocks = static_cast<int>(gridDim.x);
  s.splits = most < blocks ? most : blocks;
  const int divisor = s.splits > 0 ? s.splits : 1;
  s.begin = static_cast<int>(static_cast<int64_t>(units) * s.split / divisor);
  s.end = static_cast<int>(static_cast<int64_t>(units) * (s.split + 1) / divisor);
  return s;
}

// ---- The new heads ----

// Where the new heads go; -1: nowhere.
struct Slots {
  int query, kv;
};

__device__ inline Slots find_slots(const AttendParams& p, const Share& s) {
  return {s.split > 0 || p.query_slots == nullptr ? -1 : p.query_slots[s.row], p.kv_slots[s.row]};
}

// What a lane needs to norm and rotate its elements of a head.
struct HeadConstants {
  Pack<float, kPack> norm, cosine, sine;
};

__device__ inline HeadConstants load_constants(const AttendParams& p,
                                               const float* norm,
                                               int position,
                                               int lane) {
  using Four = Pack<float, kPack>;
  HeadConstants c{};
  if (norm != nullptr) c.norm = reinterpret_cast<const Four*>(norm)[lane];
  const float* cosines = p.rope_cos_sin + static_cast<int64_t>(position) * kDim;
  c.cosine = reinterpret_cast<const Four*>(cosines)[lane % 16];
  c.sine = reinterpret_cast<const Four*>(cosines + kDim / 2)[lane % 16];
  return c;
}

// As attention_prepare's kernel: the normed head is rounded before it is rotated.
__device__ inline void norm_and_rotate(
    const HeadConstants& c, bool has_norm, float eps, int lane, float (&x)[kPack]) {
  if (has_norm) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kPack; ++j) squares += x[j] * x[j];
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      x[j] = to_float(from_float<bf16>(x[j] * scale * c.norm.value[j]));
  }
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    const float other = __shfl_xor_sync(kAllLanes, x[j], 16);
    x[j] = x[j] * c.cosine.value[j] + (lane < 16 ? -other : other) * c.sine.value[j];
  }
}

// The queries of the group, and where the block has the row's last entry its k and v, to `heads`
// [group + 2, kDim]; from there to the pages and the query cache. A warp a head. `constants` are
// those of the warp's first one.
__device__ inline void prepare_heads(const AttendParams& p,
                                     const Share& s,
                                     const Slots& slots,
                                     const HeadConstants& constants,
                                     int position,
                                     bf16* heads) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_q_heads = p.num_kv_heads * p.group;
  const int count = p.group + (s.has_new_entry() ? 2 : 0);
  const bf16* qkv = p.qkv + static_cast<int64_t>(s.row) * (num_q_heads + 2 * p.num_kv_heads) * kDim;
  const auto first = static_cast<int>(threadIdx.x) / 32;
  for (int i = first; i < count; i += kWarps) {
    const bool is_q = i < p.group;
    const bool is_v = i == p.group + 1;
    const int head =
        is_q ? s.head * p.group + i : num_q_heads + s.head + (is_v ? p.num_kv_heads : 0);
    const auto raw = reinterpret_cast<const Pack<bf16, kPack>*>(qkv + head * kDim)[lane];
    float x[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) x[j] = to_float(raw.value[j]);
    if (!is_v) {
      const float* norm = is_q ? p.q_norm : p.k_norm;
      const HeadConstants c = i == first ? constants : load_constants(p, norm, position, lane);
      norm_and_rotate(c, norm != nullptr, p.norm_eps, lane, x);
    }
    store_pack(heads + i * kDim + lane * kPack, x);
    if (is_q) {
      if (slots.query < 0) continue;
      const int64_t place = (static_cast<int64_t>(slots.query) * num_q_heads + head) * kDim;
      store_pack(p.queries, p.query_dtype, place + lane * kPack, x);
    } else {
      if (slots.kv < 0) continue;
      const int64_t run = static_cast<int64_t>(slots.kv / p.block_size) * p.num_kv_heads + s.head;
      bf16* to = (is_v ? p.v : p.k) + (run * p.block_size + slots.kv % p.block_size) * kDim;
      store_pack(to + lane * kPack, x);
    }
  }
}

// ---- Units ----

// K and V of a unit. K: entries g and g + 8, elements 32 c + 8 t + 0..7. V: entries 2 t, 2 t + 1,
// 2 t + 8, 2 t + 9, elements 64 c + 8 g + 0..7.
struct Unit {
  uint4 k[2][4];
  uint4 v[4][2];
};

__device__ inline int v_entry(int t, int i) { return 2 * t + i % 2 + i / 2 * 8; }

__device__ inline const uint4* unit_in(const AttendParams& p,
                                       const Share& s,
                                       const bf16* pages,
                                       int unit) {
  const int entry = unit * kUnit;
  const int64_t block =
      p.block_tables[static_cast<int64_t>(s.row) * p.block_table_stride + entry / p.block_size];
  const int64_t first = (block * p.num_kv_heads + s.head) * p.block_size + entry % p.block_size;
  return reinterpret_cast<const uint4*>(pages + first * kDim);
}

// Entries of earlier steps; the others become 0 (0 * NaN is NaN).
__device__ inline void load_k(
    const AttendParams& p, const Share& s, int unit, int lane, uint4 (&k)[2][4]) {
  const uint4* from = unit_in(p, s, p.k, unit);
  const int old = s.kv_len - 1 - unit * kUnit;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int entry = lane / 4 + 8 * i;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      k[i][c] = make_uint4(0, 0, 0, 0);
      if (entry < old) k[i][c] = __ldcg(from + entry * (kDim / 8) + c * 4 + lane % 4);
    }
  }
}
__device__ inline void load_v(
    const AttendParams& p, const Share& s, int unit, int lane, uint4 (&v)[4][2]) {
  const uint4* from = unit_in(p, s, p.v, unit);
  const int old = s.kv_len - 1 - unit * kUnit;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int entry = v_entry(lane % 4, i);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      v[i][c] = make_uint4(0, 0, 0, 0);
      if (entry < old) v[i][c] = __ldcg(from + entry * (kDim / 8) + c * 8 + lane / 4);
    }
  }
}

// Puts the new entry, `k` and `v` of kDim elements in shared memory, in its place of the last unit.
__device__ inline void add_new_entry(
    const bf16* k, const bf16* v, int entry, int lane, Unit& unit) {
  const auto* k_parts = reinterpret_cast<const uint4*>(k);
  const auto* v_parts = reinterpret_cast<const uint4*>(v);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (lane / 4 + 8 * i != entry) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) unit.k[i][c] = k_parts[c * 4 + lane % 4];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (v_entry(lane % 4, i) != entry) continue;
#pragma unroll
    for (int c = 0; c < 2; ++c) unit.v[i][c] = v_parts[c * 8 + lane / 4];
  }
}

// ---- Attention of a warp ----

// A lane's part of O^T and of the softmax: queries 2 t and 2 t + 1, elements 8 g + j and
// 64 + 8 g + j.
struct Sums {
  float o[8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};
  float weight[2] = {};  // of the lane's entries until finish()
};

// S^T: entries g (0, 1) and g + 8 (2, 3), queries 2 t and 2 t + 1.
__device__ inline void scores(const uint4 (&k)[2][4], const uint4 (&q)[4], float (&s)[4]) {
  float halves[2][4] = {};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint32_t low[4] = {k[0][c].x, k[1][c].x, k[0][c].y, k[1][c].y};
    const uint32_t high[4] = {k[0][c].z, k[1][c].z, k[0][c].w, k[1][c].w};
    mma<bf16>(halves[0], low, q[c].x, q[c].y);
    mma<bf16>(halves[1], high, q[c].z, q[c].w);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) s[j] = halves[0][j] + halves[1][j];
}

// Online softmax in powers of two: s becomes the weights.
__device__ inline void weigh(int valid, float scale_log2, int lane, float (&s)[4], Sums& sums) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    s[j] = lane / 4 + j / 2 * 8 < valid ? s[j] * scale_log2 : -INFINITY;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float largest = fmaxf(s[j], s[j + 2]);
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, offset));
    const float maximum = fmaxf(sums.maximum[j], largest);
    const float keep = exp2_approx(sums.maximum[j] - maximum);
    sums.maximum[j] = maximum;
    s[j] = exp2_approx(s[j] - maximum);
    s[j + 2] = exp2_approx(s[j + 2] - maximum);
    sums.weight[j] = sums.weight[j] * keep + s[j] + s[j + 2];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sums.o[i][j] *= keep;
      sums.o[i][j + 2] *= keep;
    }
  }
}

// Element j of two entries, the first one's in the low half.
__device__ inline uint32_t pair_of(const uint4& first, const uint4& second, int j) {
  const uint32_t a[4] = {first.x, first.y, first.z, first.w};
  const uint32_t b[4] = {second.x, second.y, second.z, second.w};
  return __byte_perm(a[j / 2], b[j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
}

// O^T += V^T P^T
__device__ inline void add_values(const uint4 (&v)[4][2], const float (&weights)[4], Sums& sums) {
  const uint32_t b0 = transpose_matrix(pack_bf16(weights[0], weights[1]));
  const uint32_t b1 = transpose_matrix(pack_bf16(weights[2], weights[3]));
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const uint32_t a[4] = {pair_of(v[0][0], v[1][0], j), pair_of(v[0][1], v[1][1], j),
                           pair_of(v[2][0], v[3][0], j), pair_of(v[2][1], v[3][1], j)};
    mma<bf16>(sums.o[j], a, b0, b1);
  }
}

// ---- Sums of warps and blocks ----

// A warp's sums to `parts` [group, kDim] and `states` [group]: maximum and weight.
__device__ inline void store_sums(Sums& sums, int group, int lane, float* parts, float2* states) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      sums.weight[j] += __shfl_xor_sync(kAllLanes, sums.weight[j], offset);
    const int query = lane % 4 * 2 + j;
    if (query >= group) continue;
    if (lane < 4) states[query] = make_float2(sums.maximum[j], sums.weight[j]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = half * 2 + j;
      auto* to = reinterpret_cast<float4*>(parts + query * kDim + half * 64 + lane / 4 * 8);
      to[0] = make_float4(sums.o[0][m], sums.o[1][m], sums.o[2][m], sums.o[3][m]);
      to[1] = make_float4(sums.o[4][m], sums.o[5][m], sums.o[6][m], sums.o[7][m]);
    }
  }
}

// Two neighbouring values of a query and their softmax state.
struct Total {
  float2 value = {0, 0};
  float maximum = -INFINITY;
  float weight = 0;
};

// Adds up to N pieces, `state` -inf and 0 where there is none.
template <int N>
__device__ inline void add_pieces(const float2 (&state)[N], const float2 (&part)[N], Total& total) {
  float maximum = total.maximum;
#pragma unroll
  for (int i = 0; i < N; ++i) maximum = fmaxf(maximum, state[i].x);
  const float keep = exp2_approx(total.maximum - maximum);
  total.maximum = maximum;
  total.weight *= keep;
  total.value.x *= keep;
  total.value.y *= keep;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float factor = exp2_approx(state[i].x - maximum);
    total.weight += factor * state[i].y;
    total.value.x += factor * part[i].x;
    total.value.y += factor * part[i].y;
  }
}

__device__ inline bf16* out_of(const AttendParams& p, const Share& s) {
  return p.out + (static_cast<int64_t>(s.row) * p.num_kv_heads + s.head) * p.group * kDim;
}
__device__ inline void store_result(const Total& total, bf16* to) {
  const uint32_t pair = pack_bf16(total.value.x / total.weight, total.value.y / total.weight);
  *reinterpret_cast<uint32_t*>(to) = pair;
}

// The block's sum over its warps: the result where there is no other block, else its piece.
__device__ inline void finish_block(
    const AttendParams& p, const Share& s, const float* parts, const float2* states, float* piece) {
  const int values = p.group * kDim;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * 2; i < values; i += kThreads * 2) {
    const int query = i / kDim;
    float2 state[kWarps], part[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      state[w] = states[w * p.group + query];
      part[w] = *reinterpret_cast<const float2*>(parts + w * values + i);
    }
    Total total;
    add_pieces(state, part, total);
    if (s.splits == 1) {
      store_result(total, out_of(p, s) + i);
      continue;
    }
    __stcg(reinterpret_cast<float2*>(piece + i), total.value);
    if (i % kDim == 0) {
      __stcg(reinterpret_cast<float2*>(piece + values + query * 2),
             make_float2(total.maximum, total.weight));
    }
  }
}

// The pieces of all blocks, in order. Done by one block.
__device__ inline void finish_head(const AttendParams& p, const Share& s, const float* pieces) {
  const int values = p.group * kDim;
  const int64_t stride = p.group * (kDim + 2);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * 2; i < values; i += kThreads * 2) {
    const int query = i / kDim;
    Total total;
#pragma unroll 1
    for (int first = 0; first < s.splits; first += kPieces) {
      float2 state[kPieces], part[kPieces];
#pragma unroll
      for (int n = 0; n < kPieces; ++n) {
        const float* from = pieces + (first + n) * stride;
        state[n] = make_float2(-INFINITY, 0);
        part[n] = make_float2(0, 0);
        if (first + n >= s.splits) continue;
        state[n] = __ldcg(reinterpret_cast<const float2*>(from + values + query * 2));
        part[n] = __ldcg(reinterpret_cast<const float2*>(from + i));
      }
      add_pieces(state, part, total);
    }
    store_result(total, out_of(p, s) + i);
  }
}

// True in one block of the (row, KV head): the one that finishes last, to which the pieces of the
// others are visible then. Leaves the counter at 0.
__device__ inline bool is_last_block(const AttendParams& p, const Share& s) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* counter = p.counters + s.row * p.num_kv_heads + s.head;
    last = increment_acq_rel(counter) == static_cast<uint32_t>(s.splits) - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

// Grid [splits, num_kv_heads, rows].
// Registers: beside a GEMV of one to four tokens on the same SM.
__global__ void __maxnreg__(160) attend_kernel(const AttendParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  auto* heads = reinterpret_cast<bf16*>(shared);                         // [group + 2, kDim]
  auto* parts = reinterpret_cast<float*>(heads + (p.group + 2) * kDim);  // [kWarps, group, kDim]
  auto* states = reinterpret_cast<float2*>(parts + kWarps * p.group * kDim);  // [kWarps, group]
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  let_next_kernel_start();

  // Nothing here depends on a kernel: the batch and the older entries are there since the step
  // began.
  const Share s = find_share(p);
  if (s.splits == 0) {  // a row without entries
    if (s.split > 0) return;
    wait_for_previous_kernel();
    auto* to = reinterpret_cast<uint32_t*>(out_of(p, s));
    for (int i = static_cast<int>(threadIdx.x); i < p.group * kDim / 2; i += kThreads) to[i] = 0;
    return;
  }
  if (s.split >= s.splits) return;
  int unit = s.begin + warp;
  Unit now;
  if (unit < s.end) {
    load_k(p, s, unit, lane, now.k);
    load_v(p, s, unit, lane, now.v);
  }
  const Slots slots = find_slots(p, s);
  const int position = p.positions[s.row];
  const HeadConstants constants =
      load_constants(p, warp < p.group ? p.q_norm : p.k_norm, position, lane);
  wait_for_previous_kernel();
  prepare_heads(p, s, slots, constants, position, heads);
  __syncthreads();

  uint4 q[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    q[c] = make_uint4(0, 0, 0, 0);
    if (lane / 4 < p.group)
      q[c] = reinterpret_cast<const uint4*>(heads + lane / 4 * kDim)[c * 4 + lane % 4];
  }
  Sums sums;
  for (; unit < s.end; unit += kWarps) {
    const int valid = s.kv_len - unit * kUnit;
    if (valid <= kUnit) {
      add_new_entry(heads + p.group * kDim, heads + (p.group + 1) * kDim, valid - 1, lane, now);
    }
    const bool more = unit + kWarps < s.end;
    float weights[4];
    scores(now.k, q, weights);
    if (more) load_k(p, s, unit + kWarps, lane, now.k);
    weigh(valid, p.scale_log2, lane, weights, sums);
    add_values(now.v, weights, sums);
    if (more) load_v(p, s, unit + kWarps, lane, now.v);
  }
  store_sums(sums, p.group, lane, parts + warp * p.group * kDim, states + warp * p.group);
  __syncthreads();
  const int64_t stride = p.group * (kDim + 2);
  const int64_t pair = static_cast<int64_t>(s.row) * p.num_kv_heads + s.head;
  float* pieces = p.partials + pair * gridDim.x * stride;
  finish_block(p, s, parts, states, pieces + s.split * stride);
  if (s.splits > 1 && is_last_block(p, s)) finish_head(p, s, pieces);
}

}  // namespace

bool attend_kernel_takes(const AttentionPrepareArgs& prepare, const PagedAttentionArgs& attention) {
  const PagedKvView& kv = *attention.kv;
  const StepBatch& batch = *attention.batch;
  const bool all_single = batch.max_row_tokens == 1 || batch.num_tokens == batch.num_rows;
  return all_single && batch.num_rows <= kMaxRows && attention.dtype == DType::kBF16 &&
         kv.dtype == DType::kBF16 && kv.head_dim == kDim && prepare.rotary_dim == kDim &&
         kv.num_q_heads / kv.num_kv_heads <= kMaxGroup && kv.block_size % kUnit == 0;
}

void launch_attend(const AttentionPrepareArgs& prepare,
                   const PagedAttentionArgs& attention,
                   uint32_t* counters,
                   const CudaContext& context,
                   cudaStream_t stream) {
  const StepBatch& batch = *attention.batch;
  const PagedKvView& kv = *attention.kv;
  if (batch.num_rows == 0) return;
  const LayerKvView& layer = kv.layers[attention.layer];
  const int32_t group = kv.num_q_heads / kv.num_kv_heads;
  const AttendParams params{static_cast<const bf16*>(prepare.qkv),
                            prepare.q_norm,
                            prepare.k_norm,
                            prepare.rope_cos_sin,
                            batch.positions,
                            batch.kv_slots,
                            layer.queries == nullptr ? nullptr : batch.query_slots,
                            batch.kv_lens,
                            batch.block_tables,
                            reinterpret_cast<bf16*>(layer.k),
                            reinterpret_cast<bf16*>(layer.v),
                            layer.queries,
                            static_cast<bf16*>(attention.out),
                            static_cast<float*>(attention.workspace),
                            counters,
                            kv.query_dtype,
                            prepare.norm_eps,
                            attention.scale * kLog2e,
                            kv.num_kv_heads,
                            group,
                            kv.block_size,
                            batch.block_table_stride};
  // About a block an SM.
  const int32_t fit = context.num_sms / (batch.num_rows * kv.num_kv_heads);
  const int32_t splits = fit < 1 ? 1 : fit > kMaxSplits ? kMaxSplits : fit;
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(kv.num_kv_heads),
                  static_cast<unsigned>(batch.num_rows));
  const size_t shared = static_cast<size_t>(group + 2) * kDim * sizeof(bf16) +
                        size_t{kWarps} * static_cast<size_t>(group) * (kDim + 2) * sizeof(float);
  ZIPAGE_CUDA_CHECK(launch_kernel(attend_kernel, grid, dim3(kThreads), shared, stream,
                                  context.early_start(), params));
}

}  // namespace zipage
