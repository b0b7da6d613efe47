// A small KV cache with several jobs on the host and on the device, for the tests of the
// compression ops: random, with clusters of similar keys, scattered blocks and guard zones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/kernels/compression/compression.h"
#include "oracle/compression_oracle.h"
#include "tensor/dtype.h"

namespace zipage::test {

inline CudaContext open_context() {
  CudaContext context;
  cudaDeviceProp properties{};
  ZIPAGE_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  context.num_sms = properties.multiProcessorCount;
  context.compute_capability = properties.major * 10 + properties.minor;
  context.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  context.max_shared_bytes = properties.sharedMemPerBlockOptin;
  if (context.is_hopper()) {
    cudaDriverEntryPointQueryResult found{};
    ZIPAGE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &context.encode_tensor_map, 12000, cudaEnableDefault, &found));
  }
  return context;
}

// Device memory between two guard zones; everything starts as 0xC5.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    ZIPAGE_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&base_), bytes() + 2 * kGuard));
    ZIPAGE_CUDA_CHECK(cudaMemset(base_, kPattern, bytes() + 2 * kGuard));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { upload(host); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    std::vector<unsigned char> guard(kGuard);
    for (const size_t at : {size_t{0}, kGuard + bytes()}) {
      cudaMemcpy(guard.data(), base_ + at, kGuard, cudaMemcpyDeviceToHost);
      for (const unsigned char c : guard) {
        if (c != kPattern) {
          ADD_FAILURE() << "guard zone at " << at << " of an array of " << bytes()
                        << " bytes was written";
          break;
        }
      }
    }
    cudaFree(base_);
  }
  T* data() const { return reinterpret_cast<T*>(base_ + kGuard); }
  void upload(const std::vector<T>& host) {
    ZIPAGE_CUDA_CHECK(cudaMemcpy(data(), host.data(), bytes(), cudaMemcpyHostToDevice));
  }
  std::vector<T> download() const {
    std::vector<T> host(count_);
    ZIPAGE_CUDA_CHECK(cudaMemcpy(host.data(), data(), bytes(), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  static constexpr size_t kGuard = 4096;
  static constexpr unsigned char kPattern = 0xC5;
  size_t bytes() const { return count_ * sizeof(T); }
  size_t count_;
  unsigned char* base_ = nullptr;
};

inline size_t element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
inline void store(std::vector<unsigned char>* to, size_t element, DType dtype, float x) {
  unsigned char* p = to->data() + element * element_bytes(dtype);
  if (dtype == DType::kF32) {
    std::memcpy(p, &x, 4);
  } else {
    const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x);
    std::memcpy(p, &bits, 2);
  }
}
inline double fetch(const std::vector<unsigned char>& from, size_t element, DType dtype) {
  const unsigned char* p = from.data() + element * element_bytes(dtype);
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

struct JobShape {
  int length = 0;
  int keep = 0;
  int history = 0;
  int offset = 0;
  int prompt = 0;
  int previous = 0;  // of a peak update
};

struct Shape {
  std::string name;
  DType dtype = DType::kBF16;
  DType query_dtype = DType::kBF16;
  int head_dim = 128;
  int num_kv_heads = 2;
  int group = 4;
  int block_size = 256;
  int window = 16;
  int num_layers = 2;
  int score_capacity = 0;  // 0: longest job rounded up to blocks
  std::vector<JobShape> jobs;
  uint64_t seed = 1;
};

class World {
 public:
  explicit World(const Shape& of) : shape(of), random(of.seed), context(open_context()) {
    for (const JobShape& job : shape.jobs) max_length = std::max(max_length, job.length);
    blocks_per_job = (max_length + shape.block_size - 1) / shape.block_size;
    score_capacity =
        shape.score_capacity > 0 ? shape.score_capacity : blocks_per_job * shape.block_size;
    capacity = blocks_per_job * shape.block_size + 3;  // odd on purpose
    num_jobs = static_cast<int>(shape.jobs.size());
    num_slots = num_jobs + 1;
    num_blocks = 2 * num_jobs * blocks_per_job + 3;
    block_tables.resize(static_cast<size_t>(num_jobs * blocks_per_job));
    std::vector<int32_t> ids(static_cast<size_t>(num_blocks));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random);
    std::copy_n(ids.begin(), block_tables.size(), block_tables.begin());
    spare_blocks.assign(ids.begin() + static_cast<std::ptrdiff_t>(block_tables.size()), ids.end());
    for (int j = 0; j < num_jobs; ++j) slots.push_back((j + 1) % num_slots);
    fill();
    upload();
  }

  size_t entry(int block, int head, int offset) const {
    return ((static_cast<size_t>(block) * shape.num_kv_heads + head) * shape.block_size + offset) *
           shape.head_dim;
  }
  size_t entry_of(int job, int head, int index) const {
    return entry(block_tables[static_cast<size_t>(job * blocks_per_job + index / shape.block_size)],
                 head, index % shape.block_size);
  }
  size_t history_at(int job, int head) const {
    return (static_cast<size_t>(slots[static_cast<size_t>(job)]) * shape.num_kv_heads + head) *
           score_capacity;
  }
  size_t row(int job, int layer, int head) const {  // of score scratch
    return ((static_cast<size_t>(job) * shape.num_layers + layer) * shape.num_kv_heads + head) *
           capacity;
  }
  oracle::Rows keys_of(int job, int layer, int head) const {
    oracle::Rows rows(static_cast<size_t>(shape.jobs[static_cast<size_t>(job)].length));
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int d = 0; d < shape.head_dim; ++d) {
        rows[i].push_back(fetch(k[static_cast<size_t>(layer)],
                                entry_of(job, head, static_cast<int>(i)) + static_cast<size_t>(d),
                                shape.dtype));
      }
    }
    return rows;
  }
  oracle::Window window_of(int job, int layer, int head) const {
    const int length = shape.jobs[static_cast<size_t>(job)].length;
    const int w = std::min(shape.window, length);
    oracle::Window queries(static_cast<size_t>(w));
    for (int u = 0; u < w; ++u) {
      const int ring = (length - w + u) % shape.window;
      for (int g = 0; g < shape.group; ++g) {
        oracle::Row q;
        for (int d = 0; d < shape.head_dim; ++d) {
          const size_t at =
              ((static_cast<size_t>(slots[static_cast<size_t>(job)]) * shape.window + ring) *
                   shape.num_kv_heads * shape.group +
               head * shape.group + g) *
                  shape.head_dim +
              d;
          q.push_back(fetch(queries_host[static_cast<size_t>(layer)], at, shape.query_dtype));
        }
        queries[static_cast<size_t>(u)].push_back(q);
      }
    }
    return queries;
  }
  std::vector<int> positions_of(int job, int layer, int head) const {
    const JobShape& s = shape.jobs[static_cast<size_t>(job)];
    std::vector<int> out;
    for (int i = 0; i < s.length; ++i) {
      const size_t at = history_at(job, head) + static_cast<size_t>(i);
      out.push_back(i < s.history ? positions[static_cast<size_t>(layer)][at] : i + s.offset);
    }
    return out;
  }
  oracle::Row history_of(int job, int layer, int head, int count) const {
    const auto begin = scores[static_cast<size_t>(layer)].begin() +
                       static_cast<std::ptrdiff_t>(history_at(job, head));
    return {begin, begin + count};
  }
  // The scores on the device are those of before with each job's F updated from `previous` entries
  // on (half-life 128), as the oracle says; the places of no job are as they were.
  void check_peaks(float scale, const char* kernel) const {
    for (int l = 0; l < shape.num_layers; ++l) {
      const std::vector<float>& before = scores[static_cast<size_t>(l)];
      std::vector<double> want(before.begin(), before.end());
      for (int j = 0; j < num_jobs; ++j) {
        const int previous = shape.jobs[static_cast<size_t>(j)].previous;
        for (int h = 0; h < shape.num_kv_heads; ++h) {
          const oracle::Row f = oracle::peak_update(window_of(j, l, h), keys_of(j, l, h), scale,
                                                    128, history_of(j, l, h, previous), previous);
          std::copy(f.begin(), f.end(),
                    want.begin() + static_cast<std::ptrdiff_t>(history_at(j, h)));
        }
      }
      const std::vector<float> got = device_scores[static_cast<size_t>(l)]->download();
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 2e-4 * (want[i] + 1e-6))
            << kernel << " layer " << l << " place " << i;
      }
    }
  }
  template <typename Args>
  void set_common(Args* args) const {
    args->batch = &batch;
    args->kv = &kv;
    args->layer_begin = 0;
    args->num_layers = shape.num_layers;
    args->capacity = capacity;
  }
  size_t scratch_size() const {
    return static_cast<size_t>(num_jobs) * shape.num_layers * shape.num_kv_heads * capacity;
  }
  size_t workspace_floats() const {
    Backend::Limits limits{};
    limits.max_kv_len = max_length;
    limits.score_capacity = score_capacity;
    limits.num_q_heads = shape.num_kv_heads * shape.group;
    limits.num_kv_heads = shape.num_kv_heads;
    limits.head_dim = shape.head_dim;
    limits.window_size = shape.window;
    return compression_kernel_workspace_bytes(limits, {}, context) / 4;
  }
  template <typename F>
  void for_each_unit(F&& f) const {
    for (int j = 0; j < num_jobs; ++j) {
      for (int l = 0; l < shape.num_layers; ++l) {
        for (int h = 0; h < shape.num_kv_heads; ++h) f(j, l, h);
      }
    }
  }

  Shape shape;
  std::mt19937_64 random;
  CudaContext context;
  int max_length = 0, blocks_per_job = 0, score_capacity = 0, capacity = 0, num_jobs = 0,
      num_slots = 0, num_blocks = 0;
  std::vector<int32_t> slots, block_tables, spare_blocks;
  std::vector<std::vector<unsigned char>> k, v, queries_host;  // [layer]
  std::vector<std::vector<float>> scores;
  std::vector<std::vector<int32_t>> positions;
  std::vector<float> cos_sin;  // [kMaxPosition, head_dim]
  static constexpr int kMaxPosition = 6000;

  CompressionBatch batch;
  PagedKvView kv;
  std::vector<LayerKvView> layers;
  std::vector<std::unique_ptr<DeviceArray<unsigned char>>>
      device_bytes;  // k, v, queries of each layer
  std::vector<std::unique_ptr<DeviceArray<float>>> device_scores;
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> device_positions;
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> tables;
  std::unique_ptr<DeviceArray<uint64_t>> device_seeds;
  std::vector<uint64_t> seeds;
  std::unique_ptr<DeviceArray<float>> device_cos_sin;

  int32_t* add_table(const std::vector<int32_t>& values) {
    tables.push_back(std::make_unique<DeviceArray<int32_t>>(values));
    return tables.back()->data();
  }

 private:
  void fill() {
    std::normal_distribution<float> normal;
    const int d = shape.head_dim;
    for (int l = 0; l < shape.num_layers; ++l) {
      const size_t pool =
          static_cast<size_t>(num_blocks) * shape.num_kv_heads * shape.block_size * d;
      k.emplace_back(pool * element_bytes(shape.dtype), 0x7B);
      v.emplace_back(pool * element_bytes(shape.dtype));
      for (size_t i = 0; i < v.back().size() / element_bytes(shape.dtype); ++i) {
        store(&v.back(), i, shape.dtype, normal(random));
      }
      // Keys around few centres, so that similarities lie on both sides of the threshold.
      std::vector<float> centres(static_cast<size_t>(7 * d));
      for (float& x : centres) x = normal(random);
      for (int j = 0; j < num_jobs; ++j) {
        for (int h = 0; h < shape.num_kv_heads; ++h) {
          for (int i = 0; i < blocks_per_job * shape.block_size; ++i) {
            const size_t centre = random() % 7 * static_cast<size_t>(d);
            const float size = 0.5f + static_cast<float>(random() % 100) / 25.0f;
            for (int e = 0; e < d; ++e) {
              store(&k.back(), entry_of(j, h, i) + static_cast<size_t>(e), shape.dtype,
                    size * (centres[centre + static_cast<size_t>(e)] + 0.9f * normal(random)));
            }
          }
        }
      }
      const size_t count =
          static_cast<size_t>(num_slots) * shape.window * shape.num_kv_heads * shape.group * d;
      queries_host.emplace_back(count * element_bytes(shape.query_dtype));
      for (size_t i = 0; i < count; ++i)
        store(&queries_host.back(), i, shape.query_dtype, normal(random));
      std::vector<float> f(static_cast<size_t>(num_slots) * shape.num_kv_heads * score_capacity);
      for (float& x : f) x = std::abs(normal(random)) / static_cast<float>(max_length);
      scores.push_back(f);
      std::vector<int32_t> p(f.size());
      for (int s = 0; s < num_slots; ++s) {
        for (int h = 0; h < shape.num_kv_heads; ++h) {
          int at = static_cast<int>(random() % 3);
          for (int i = 0; i < score_capacity; ++i) {
            p[(static_cast<size_t>(s) * shape.num_kv_heads + h) * score_capacity + i] = at;
            at += 1 + static_cast<int>(random() % 2);
          }
        }
      }
      positions.push_back(p);
    }
    cos_sin.resize(static_cast<size_t>(kMaxPosition) * d);
    for (int p = 0; p < kMaxPosition; ++p) {
      for (int i = 0; i < d / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / d);
        cos_sin[static_cast<size_t>(p) * d + i] = static_cast<float>(std::cos(angle));
        cos_sin[static_cast<size_t>(p) * d + d / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
  }
  void upload() {
    kv.dtype = shape.dtype;
    kv.query_dtype = shape.query_dtype;
    kv.num_layers = shape.num_layers;
    kv.num_blocks = num_blocks;
    kv.block_size = shape.block_size;
    kv.num_kv_heads = shape.num_kv_heads;
    kv.num_q_heads = shape.num_kv_heads * shape.group;
    kv.head_dim = shape.head_dim;
    kv.num_slots = num_slots;
    kv.window_size = shape.window;
    kv.score_capacity = score_capacity;
    for (int l = 0; l < shape.num_layers; ++l) {
      const auto at = static_cast<size_t>(l);
      LayerKvView view;
      std::byte** fields[] = {&view.k, &view.v, &view.queries};
      const std::vector<unsigned char>* hosts[] = {&k[at], &v[at], &queries_host[at]};
      for (int i = 0; i < 3; ++i) {
        device_bytes.push_back(std::make_unique<DeviceArray<unsigned char>>(*hosts[i]));
        *fields[i] = reinterpret_cast<std::byte*>(device_bytes.back()->data());
      }
      device_scores.push_back(std::make_unique<DeviceArray<float>>(scores[at]));
      view.scores = device_scores.back()->data();
      device_positions.push_back(std::make_unique<DeviceArray<int32_t>>(positions[at]));
      view.positions = device_positions.back()->data();
      layers.push_back(view);
    }
    kv.layers = layers.data();
    std::vector<int32_t> lengths, keeps, histories, offsets, prompts;
    for (const JobShape& job : shape.jobs) {
      lengths.push_back(job.length);
      keeps.push_back(job.keep);
      histories.push_back(job.history);
      offsets.push_back(job.offset);
      prompts.push_back(job.prompt);
      seeds.push_back(random());
      batch.max_keep = std::max(batch.max_keep, job.keep);
    }
    batch.num_jobs = num_jobs;
    batch.max_length = max_length;
    batch.slots = add_table(slots);
    batch.lengths = add_table(lengths);
    batch.keeps = add_table(keeps);
    batch.histories = add_table(histories);
    batch.position_offsets = add_table(offsets);
    batch.prompt_lengths = add_table(prompts);
    batch.block_tables = add_table(block_tables);
    batch.block_table_stride = blocks_per_job;
    device_seeds = std::make_unique<DeviceArray<uint64_t>>(seeds);
    batch.seeds = device_seeds->data();
    device_cos_sin = std::make_unique<DeviceArray<float>>(cos_sin);
  }
};

// Shapes that are odd on purpose: partial blocks, one entry, every GQA, head_dim and dtype.
inline std::vector<Shape> odd_shapes() {
  const DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16;
  std::vector<Shape> shapes;
  const auto add = [&](const char* name, DType kv, DType q, int d, int heads, int group, int b,
                       int w, std::vector<JobShape> jobs) {
    Shape s;
    s.name = name, s.dtype = kv, s.query_dtype = q, s.head_dim = d, s.num_kv_heads = heads,
    s.group = group;
    s.block_size = b, s.window = w, s.jobs = std::move(jobs), s.seed = shapes.size() + 11;
    shapes.push_back(s);
  };
  add("bf16_d128_g4", bf16, bf16, 128, 2, 4, 256, 16,
      {{768, 512, 512, 700, 100, 512}, {1024, 768, 0, 0, 40, 0}, {300, 256, 256, 5, 0, 256}});
  add("bf16_d64_g1_b16", bf16, bf16, 64, 3, 1, 16, 8,
      {{33, 16, 16, 9, 3, 16}, {1, 1, 0, 0, 1, 0}, {270, 100, 0, 0, 9, 0}});
  add("bf16_d64_g2_b128", bf16, bf16, 64, 2, 2, 128, 16,
      {{640, 512, 512, 30, 9, 624}, {129, 64, 0, 0, 9, 0}, {1, 1, 0, 0, 1, 0}});
  add("bf16_d80_g8", bf16, bf16, 80, 1, 8, 64, 16,
      {{512, 448, 448, 31, 9, 496}, {200, 128, 64, 0, 9, 64}});
  add("bf16_d96_g3", bf16, bf16, 96, 2, 3, 128, 16,
      {{384, 256, 256, 50, 9, 256}, {5, 3, 0, 0, 2, 0}});
  add("bf16_d256_g2", bf16, bf16, 256, 2, 2, 256, 16,
      {{700, 512, 512, 90, 77, 512}, {256, 200, 0, 0, 9, 0}});
  add("f16_d128_g7_w32", f16, f16, 128, 1, 7, 64, 32,
      {{640, 512, 0, 0, 9, 0}, {320, 256, 256, 8, 9, 288}});
  add("f32_d128_g4", f32, f32, 128, 2, 4, 256, 16,
      {{600, 512, 512, 100, 20, 512}, {513, 256, 0, 0, 9, 0}});
  add("f32_d256_g5_w5", f32, f32, 256, 1, 5, 20, 5, {{111, 60, 0, 0, 9, 0}, {3, 2, 0, 0, 1, 0}});
  add("f32_d64_g2", f32, f32, 64, 2, 2, 32, 16, {{96, 64, 64, 7, 9, 80}});
  add("bf16_keys_f32_queries", bf16, f32, 128, 1, 4, 256, 16, {{512, 256, 256, 64, 9, 256}});
  add("bf16_b512", bf16, bf16, 128, 1, 4, 512, 16, {{1024, 512, 512, 64, 9, 512}});
  return shapes;
}

}  // namespace zipage::test
