// A step with attention for tests: random pages, tables and queries of a given shape, with guard
// zones. Host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/runtime/context.h"
#include "backend/cpu/simd/isa.h"
#include "backend/ops/transformer.h"
#include "tensor/dtype.h"

namespace zipage {

inline std::vector<cpu::Isa> available_isas() {
  const cpu::CpuFeatures features = cpu::detect_cpu_features();
  std::vector<cpu::Isa> isas;
  for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (cpu::is_supported(isa, features)) isas.push_back(isa);
  }
  return isas;
}

inline cpu::CpuContext make_context(ThreadPool& pool, cpu::Isa isa) {
  cpu::CpuContext context;
  context.pool = &pool;
  context.isa = isa;
  return context;
}

inline void write_element(std::byte* data, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(data + index * 4, &value, 4);
  } else {
    const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(data + index * 2, &bits, 2);
  }
}

// kv_len counts the row's own num_tokens.
struct RowShape {
  int32_t num_tokens;
  int32_t kv_len;
};

struct AttentionShape {
  int32_t num_q_heads = 2, num_kv_heads = 1, head_dim = 64, block_size = 16;
  DType kv_dtype = DType::kF32;
  DType query_dtype = DType::kF32;
  std::vector<RowShape> rows;
  uint32_t seed = 1;

  std::string text() const {
    std::string s = fmt::format("{}/{} heads of {}, block {}, kv {}, rows", num_q_heads,
                                num_kv_heads, head_dim, block_size, to_string(kv_dtype));
    for (const RowShape& row : rows) s += fmt::format(" {}@{}", row.num_tokens, row.kv_len);
    return s;
  }
};

// As f32, f16 and bf16 a large number that no op would write.
inline constexpr uint8_t kGuardByte = 0xfb;
inline constexpr int64_t kGuardFloats = 64;

// Every row has its own blocks, in shuffled order; the blocks no row owns, and the entries behind a
// row's length, hold NaN: a kernel that lets one in spoils its result.
class AttentionCase {
 public:
  explicit AttentionCase(const AttentionShape& s) : shape(s), random_(s.seed) {
    batch.num_rows = static_cast<int32_t>(shape.rows.size());
    int32_t blocks_needed = 0, stride = 1;
    row_begin.push_back(0);
    for (const RowShape& row : shape.rows) {
      row_begin.push_back(row_begin.back() + row.num_tokens);
      kv_lens.push_back(row.kv_len);
      const int32_t blocks = (row.kv_len + shape.block_size - 1) / shape.block_size;
      blocks_needed += blocks;
      stride = std::max(stride, blocks + 1);
      batch.max_row_tokens = std::max(batch.max_row_tokens, row.num_tokens);
      batch.max_kv_len = std::max(batch.max_kv_len, row.kv_len);
    }
    batch.num_tokens = row_begin.back();
    num_blocks = blocks_needed + 3;
    std::vector<int32_t> ids(static_cast<size_t>(num_blocks));
    for (int32_t i = 0; i < num_blocks; ++i) ids[i] = i;
    std::shuffle(ids.begin(), ids.end(), random_);
    tables.assign(static_cast<size_t>(batch.num_rows) * stride, -1);
    size_t next = 0;
    for (int32_t r = 0; r < batch.num_rows; ++r) {
      const int32_t blocks = (shape.rows[r].kv_len + shape.block_size - 1) / shape.block_size;
      for (int32_t b = 0; b < blocks; ++b) tables[r * stride + b] = ids[next++];
    }
    for (int32_t r = 0; r < batch.num_rows; ++r) {
      for (int32_t j = 0; j < shape.rows[r].num_tokens; ++j) {
        const int32_t index = shape.rows[r].kv_len - shape.rows[r].num_tokens + j;
        positions.push_back(index + 5 * r);  // positions and places part ways after a compression
        kv_slots.push_back(tables[r * stride + index / shape.block_size] * shape.block_size +
                           index % shape.block_size);
        row_of_token.push_back(r);
      }
    }
    batch.block_table_stride = stride;
    fill_pages();
    q = floats(static_cast<int64_t>(batch.num_tokens) * shape.num_q_heads * shape.head_dim, 1.0f);
    bind();
  }
  AttentionCase(const AttentionCase&) = delete;

  void bind() {
    batch.positions = positions.data();
    batch.kv_slots = kv_slots.data();
    batch.row_of_token = row_of_token.data();
    batch.row_begin = row_begin.data();
    batch.kv_lens = kv_lens.data();
    batch.block_tables = tables.data();
    kv.dtype = shape.kv_dtype;
    kv.query_dtype = shape.query_dtype;
    kv.num_layers = 1;
    kv.num_blocks = num_blocks;
    kv.block_size = shape.block_size;
    kv.num_kv_heads = shape.num_kv_heads;
    kv.num_q_heads = shape.num_q_heads;
    kv.head_dim = shape.head_dim;
    layer.k = k.data();
    layer.v = v.data();
    kv.layers = &layer;
  }

  int64_t entry(int32_t row, int32_t kv_head, int32_t index) const {
    const int64_t block = tables[row * batch.block_table_stride + index / shape.block_size];
    return ((block * shape.num_kv_heads + kv_head) * shape.block_size + index % shape.block_size) *
           shape.head_dim;
  }

  std::vector<float> floats(int64_t count, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }

  AttentionShape shape;
  int32_t num_blocks = 0;
  std::vector<int32_t> row_begin, kv_lens, tables, positions, kv_slots, row_of_token;
  std::vector<std::byte> k, v;
  std::vector<float> q;
  StepBatch batch;
  LayerKvView layer;
  PagedKvView kv;

 private:
  void fill_pages() {
    const int64_t count =
        static_cast<int64_t>(num_blocks) * shape.num_kv_heads * shape.block_size * shape.head_dim;
    for (std::vector<std::byte>* pages : {&k, &v}) {
      pages->resize(static_cast<size_t>(dtype_bytes(shape.kv_dtype, count)));
      for (int64_t i = 0; i < count; ++i) write_element(pages->data(), shape.kv_dtype, i, NAN);
      std::normal_distribution<float> normal(0, 1);
      for (int32_t r = 0; r < batch.num_rows; ++r) {
        for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
          for (int32_t i = 0; i < shape.rows[r].kv_len; ++i) {
            for (int32_t d = 0; d < shape.head_dim; ++d) {
              write_element(pages->data(), shape.kv_dtype, entry(r, h, i) + d, normal(random_));
            }
          }
        }
      }
    }
  }

  std::mt19937 random_;
};

}  // namespace zipage
