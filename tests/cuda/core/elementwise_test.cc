#include "cuda/core/device.h"

namespace zipage::test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

HostTensor host_tensor(const std::vector<std::byte>& bytes, DType dtype, Shape shape) {
  HostTensor tensor;
  tensor.name = "w";
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = bytes.data();
  return tensor;
}

TEST(Embed, CopiesRows) {
  for (const DType dtype : kDTypes) {
    Device device(dtype);
    Random random(1);
    for (const int32_t hidden : {64, 100, 1024, 4096}) {
      const auto table = random.normal(static_cast<size_t>(50 * hidden));
      const auto bytes = encode(table, dtype);
      const HostTensor part = host_tensor(bytes, dtype, {50, hidden});
      const auto weight = device.backend->make_linear({&part, 1}, {});
      std::vector<int32_t> ids = {49, 0, 7, -2, 31};
      const std::vector<int32_t> previous = {3, 8};
      const std::vector<size_t> want = {49, 0, 7, 8, 31};
      Buffer previous_device = device.upload(previous);
      Buffer ids_device = device.upload(ids);
      Buffer out = device.poisoned(static_cast<size_t>(dtype_bytes(dtype, 5 * hidden)));
      device.backend->embed({dtype, weight.get(), ids_device.as<int32_t>(),
                             previous_device.as<int32_t>(), 5, hidden, out.data()},
                            *device.stream);
      const auto got = device.download(out.data(), out.bytes());
      const size_t row = static_cast<size_t>(dtype_bytes(dtype, hidden));
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(std::memcmp(got.data() + i * row, bytes.data() + want[i] * row, row), 0);
      }
      Buffer gathered = device.poisoned(3 * row);
      std::vector<int32_t> rows = {4, 1, 1};
      Buffer rows_device = device.upload(rows);
      device.backend->gather_rows(
          {dtype, out.data(), rows_device.as<int32_t>(), 3, hidden, gathered.data()},
          *device.stream);
      const auto picked = device.download(gathered.data(), gathered.bytes());
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(std::memcmp(picked.data() + i * row,
                              got.data() + static_cast<size_t>(rows[i]) * row, row),
                  0);
      }
    }
  }
}

TEST(RmsNorm, EqualsTheFormula) {
  for (const DType dtype : kDTypes) {
    Device device(dtype);
    Random random(2);
    for (const int32_t hidden : {64, 100, 1024, 4096, 5120, 8192}) {
      for (const int32_t tokens : {1, 3, 17}) {
        for (const bool with_residual : {false, true}) {
          const size_t count = static_cast<size_t>(tokens) * static_cast<size_t>(hidden);
          const auto x = rounded(random.normal(count), dtype);
          const auto residual = rounded(random.normal(count), dtype);
          const auto weight = rounded(random.normal(static_cast<size_t>(hidden)), DType::kF32);
          std::vector<double> sum = x;
          if (with_residual) {
            for (size_t i = 0; i < count; ++i) sum[i] += residual[i];
            sum = rounded(sum, dtype);
          }
          std::vector<double> want(count);
          for (int32_t t = 0; t < tokens; ++t) {
            double squares = 0;
            for (int32_t i = 0; i < hidden; ++i)
              squares += std::pow(sum[static_cast<size_t>(t * hidden + i)], 2);
            const double scale = 1 / std::sqrt(squares / hidden + 1e-6);
            for (int32_t i = 0; i < hidden; ++i) {
              const auto place = static_cast<size_t>(t * hidden + i);
              want[place] = sum[place] * scale * weight[static_cast<size_t>(i)];
            }
          }
          Buffer x_device = device.upload(x, dtype);
          Buffer residual_device = device.upload(residual, dtype);
          Buffer weight_device = device.upload(weight, DType::kF32);
          Buffer out = device.poisoned(x_device.bytes());
          device.backend->rms_norm(
              {dtype, x_device.data(), with_residual ? residual_device.data() : nullptr,
               weight_device.as<float>(), 1e-6f, tokens, hidden, out.data()},
              *device.stream);
          const std::string what =
              std::string(to_string(dtype)) + " hidden " + std::to_string(hidden);
          expect_near(device.download(out, dtype, count), want,
                      dtype == DType::kF32 ? 4e-6 : 1.2 * half_ulp(dtype), 1e-6, what);
          expect_near(device.download(residual_device, dtype, count),
                      with_residual ? sum : residual, half_ulp(DType::kF32), 1e-6,
                      what + " residual");
        }
      }
    }
  }
}

TEST(SiluMul, EqualsTheFormula) {
  for (const DType dtype : kDTypes) {
    Device device(dtype);
    Random random(3);
    for (const int32_t width : {24, 100, 3072, 12288}) {
      for (const int32_t tokens : {1, 5}) {
        auto gate_up = rounded(random.normal(static_cast<size_t>(2 * tokens * width), 3), dtype);
        gate_up[0] = -200;  // exp overflows
        std::vector<double> want(static_cast<size_t>(tokens * width));
        for (int32_t t = 0; t < tokens; ++t) {
          for (int32_t i = 0; i < width; ++i) {
            const double gate = gate_up[static_cast<size_t>(2 * t * width + i)];
            const double up = gate_up[static_cast<size_t>((2 * t + 1) * width + i)];
            want[static_cast<size_t>(t * width + i)] = gate / (1 + std::exp(-gate)) * up;
          }
        }
        Buffer in = device.upload(gate_up, dtype);
        Buffer out = device.poisoned(in.bytes() / 2);
        device.backend->silu_mul({dtype, in.data(), tokens, width, out.data()}, *device.stream);
        expect_near(device.download(out, dtype, want.size()), want,
                    dtype == DType::kF32 ? 2e-6 : 1.2 * half_ulp(dtype), 1e-6,
                    std::string(to_string(dtype)) + " width " + std::to_string(width));
      }
    }
  }
}

struct PrepareCase {
  DType dtype, kv_dtype;
  int32_t head_dim, rotary_dim, num_q_heads, num_kv_heads;
  bool norms;
};

void check_prepare(const PrepareCase& c) {
  Device device(c.dtype);
  Random random(static_cast<uint64_t>(c.head_dim * 10 + c.num_q_heads));
  constexpr int32_t kTokens = 7, kBlocks = 5, kBlockSize = 16, kWindow = 4, kSlots = 3,
                    kMaxPosition = 40;
  const int32_t d = c.head_dim;
  const int32_t heads = c.num_q_heads + 2 * c.num_kv_heads;
  const auto qkv = rounded(random.normal(static_cast<size_t>(kTokens * heads * d)), c.dtype);
  const auto q_norm = rounded(random.normal(static_cast<size_t>(d)), DType::kF32);
  const auto k_norm = rounded(random.normal(static_cast<size_t>(d)), DType::kF32);
  const int32_t half = c.rotary_dim / 2;
  std::vector<double> rope(static_cast<size_t>(kMaxPosition * c.rotary_dim));
  for (int32_t p = 0; p < kMaxPosition; ++p) {
    for (int32_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / c.rotary_dim);
      rope[static_cast<size_t>(p * c.rotary_dim + i)] = std::cos(angle);
      rope[static_cast<size_t>(p * c.rotary_dim + half + i)] = std::sin(angle);
    }
  }
  rope = rounded(rope, DType::kF32);
  std::vector<int32_t> positions, kv_slots, query_slots;
  for (int32_t t = 0; t < kTokens; ++t) {
    positions.push_back(random.below(kMaxPosition));
    kv_slots.push_back(t == 6 ? -1 : (t * 11 + 3) % (kBlocks * kBlockSize));
    query_slots.push_back(t % 3 == 1 ? -1 : t + 2);
  }
  Buffer qkv_device = device.upload(qkv, c.dtype);
  Buffer q_norm_device = device.upload(q_norm, DType::kF32);
  Buffer k_norm_device = device.upload(k_norm, DType::kF32);
  Buffer rope_device = device.upload(rope, DType::kF32);
  Buffer positions_device = device.upload(positions);
  Buffer kv_slots_device = device.upload(kv_slots);
  Buffer query_slots_device = device.upload(query_slots);
  const size_t page_count = static_cast<size_t>(kBlocks * c.num_kv_heads * kBlockSize * d);
  const size_t query_count = static_cast<size_t>(kSlots * kWindow * c.num_q_heads * d);
  const size_t q_count = static_cast<size_t>(kTokens * c.num_q_heads * d);
  Buffer k = device.poisoned(
      static_cast<size_t>(dtype_bytes(c.kv_dtype, static_cast<int64_t>(page_count))));
  Buffer v = device.poisoned(k.bytes());
  Buffer queries =
      device.poisoned(static_cast<size_t>(dtype_bytes(c.dtype, static_cast<int64_t>(query_count))));
  Buffer q_out =
      device.poisoned(static_cast<size_t>(dtype_bytes(c.dtype, static_cast<int64_t>(q_count))));
  LayerKvView layer;
  layer.k = k.data();
  layer.v = v.data();
  layer.queries = queries.data();
  PagedKvView kv;
  kv.dtype = c.kv_dtype;
  kv.query_dtype = c.dtype;
  kv.num_layers = 1;
  kv.num_blocks = kBlocks;
  kv.block_size = kBlockSize;
  kv.num_kv_heads = c.num_kv_heads;
  kv.num_q_heads = c.num_q_heads;
  kv.head_dim = d;
  kv.num_slots = kSlots;
  kv.window_size = kWindow;
  kv.layers = &layer;
  StepBatch batch;
  batch.num_tokens = kTokens;
  batch.positions = positions_device.as<int32_t>();
  batch.kv_slots = kv_slots_device.as<int32_t>();
  batch.query_slots = query_slots_device.as<int32_t>();
  AttentionPrepareArgs args{};
  args.dtype = c.dtype;
  args.qkv = qkv_device.data();
  args.q_norm = c.norms ? q_norm_device.as<float>() : nullptr;
  args.k_norm = c.norms ? k_norm_device.as<float>() : nullptr;
  args.norm_eps = 1e-6f;
  args.rope_cos_sin = rope_device.as<float>();
  args.rotary_dim = c.rotary_dim;
  args.batch = &batch;
  args.kv = &kv;
  args.q_out = q_out.data();
  device.backend->attention_prepare(args, *device.stream);

  const double nan = std::nan("");
  std::vector<double> want_q(q_count), want_k(page_count, nan), want_v(page_count, nan),
      want_queries(query_count, nan);
  for (int32_t t = 0; t < kTokens; ++t) {
    for (int32_t h = 0; h < heads; ++h) {
      std::vector<double> x(qkv.begin() + (t * heads + h) * d,
                            qkv.begin() + (t * heads + h + 1) * d);
      const bool is_q = h < c.num_q_heads;
      const bool is_v = h >= c.num_q_heads + c.num_kv_heads;
      if (!is_v) {
        if (c.norms) {
          double squares = 0;
          for (const double e : x) squares += e * e;
          const double scale = 1 / std::sqrt(squares / d + 1e-6);
          for (int32_t i = 0; i < d; ++i)
            x[static_cast<size_t>(i)] *= scale * (is_q ? q_norm : k_norm)[static_cast<size_t>(i)];
        }
        const double* cosines = rope.data() + positions[static_cast<size_t>(t)] * c.rotary_dim;
        for (int32_t i = 0; i < half; ++i) {
          const double a = x[static_cast<size_t>(i)];
          const double b = x[static_cast<size_t>(i + half)];
          x[static_cast<size_t>(i)] = a * cosines[i] - b * cosines[half + i];
          x[static_cast<size_t>(i + half)] = b * cosines[i] + a * cosines[half + i];
        }
      }
      for (int32_t i = 0; i < d; ++i) {
        const double e = x[static_cast<size_t>(i)];
        if (is_q) {
          want_q[static_cast<size_t>((t * c.num_q_heads + h) * d + i)] = e;
          const int32_t slot = query_slots[static_cast<size_t>(t)];
          if (slot >= 0) want_queries[static_cast<size_t>((slot * c.num_q_heads + h) * d + i)] = e;
        } else {
          const int32_t kv_head = h - c.num_q_heads - (is_v ? c.num_kv_heads : 0);
          const int32_t slot = kv_slots[static_cast<size_t>(t)];
          if (slot < 0) continue;
          const int32_t entry =
              (slot / kBlockSize * c.num_kv_heads + kv_head) * kBlockSize + slot % kBlockSize;
          (is_v ? want_v : want_k)[static_cast<size_t>(entry * d + i)] = e;
        }
      }
    }
  }
  const auto check = [&](const Buffer& buffer, DType dtype, const std::vector<double>& want,
                         const char* name) {
    const auto got = device.download(buffer, dtype, want.size());
    std::vector<double> written_got, written_want;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i]))
          << name << " " << i;  // nothing else was written
      if (std::isnan(want[i])) continue;
      written_got.push_back(got[i]);
      written_want.push_back(want[i]);
    }
    // The norm is rounded before the rotation: two roundings, and the rotation can cancel.
    const double unit = std::max(half_ulp(dtype), half_ulp(c.dtype));
    expect_near(written_got, written_want,
                dtype == DType::kF32 && c.dtype == DType::kF32 ? 4e-6 : 3 * unit, 1.5,
                std::string(name) + " d " + std::to_string(d));
  };
  check(q_out, c.dtype, want_q, "q");
  check(k, c.kv_dtype, want_k, "k");
  check(v, c.kv_dtype, want_v, "v");
  check(queries, c.dtype, want_queries, "queries");
}

TEST(AttentionPrepare, EqualsTheFormula) {
  int count = 0;
  for (const DType dtype : kDTypes) {
    for (const DType kv_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      check_prepare({dtype, kv_dtype, 128, 128, 8, 2, true});
      ++count;
    }
    check_prepare({dtype, dtype, 64, 64, 14, 2, false});
    check_prepare({dtype, dtype, 80, 40, 3, 3, true});
    check_prepare({dtype, dtype, 96, 96, 6, 2, true});
    check_prepare({dtype, dtype, 256, 64, 4, 1, true});
    count += 4;
  }
  RecordProperty("cases", count);
}

}  // namespace
}  // namespace zipage::test
