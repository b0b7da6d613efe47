// Time of the CPU's compression ops for one request and all its layers: milliseconds, and the share
// of the machine's f32 multiply-add peak (both measured in the same run) for those that are
// products. usage: bench_ops_cpu_compression [--isa NAME] [--threads N] [--dtype bf16|f16|f32]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/error.h"
#include "machine_peak.h"

namespace zipage {
namespace {

struct ModelShape {
  const char* name;
  int32_t layers, q_heads, kv_heads, head_dim, block_size, blocks;
};
constexpr ModelShape kShapes[] = {{"reasoner, 512 entries", 10, 6, 2, 64, 64, 8},
                                  {"reasoner, 2304 entries", 10, 6, 2, 64, 256, 9},
                                  {"qwen3-0.6b, 2304 entries", 28, 16, 8, 128, 256, 9}};

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double best_ms(const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double begin = now_ms();
    body();
    best = std::min(best, now_ms() - begin);
  }
  return best;
}

void bench(cpu::CpuBackend& backend, const ModelShape& m, DType dtype, double peak) {
  const auto stream = backend.create_stream(false);
  std::vector<Buffer> buffers;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto filled = [&](int64_t count, DType type) {
    buffers.push_back(
        backend.allocate(static_cast<size_t>(dtype_bytes(type, count)), MemorySpace::kDevice));
    for (int64_t i = 0; i < count; ++i) {
      const float x = normal(random);
      if (type == DType::kF32) {
        buffers.back().as<float>()[i] = x;
      } else {
        buffers.back().as<uint16_t>()[i] = type == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x);
      }
    }
    return buffers.back().data();
  };
  const auto zeros = [&](int64_t count) {
    buffers.push_back(backend.allocate(static_cast<size_t>(count) * 4, MemorySpace::kDevice));
    backend.fill_zero(buffers.back().data(), buffers.back().bytes(), *stream);
    return buffers.back().as<int32_t>();
  };
  const int32_t n = m.block_size * m.blocks;
  constexpr int32_t kWindow = 16;
  std::vector<LayerKvView> layers(static_cast<size_t>(m.layers));
  for (auto& layer : layers) {
    layer.k = filled(int64_t{n} * m.kv_heads * m.head_dim, dtype);
    layer.v = filled(int64_t{n} * m.kv_heads * m.head_dim, dtype);
    layer.queries = filled(int64_t{kWindow} * m.q_heads * m.head_dim, DType::kF32);
    layer.scores = reinterpret_cast<float*>(zeros(int64_t{n} * m.kv_heads));
    layer.positions = zeros(int64_t{n} * m.kv_heads);
  }
  const PagedKvView kv = {.dtype = dtype,
                          .query_dtype = DType::kF32,
                          .num_layers = m.layers,
                          .num_blocks = m.blocks,
                          .block_size = m.block_size,
                          .num_kv_heads = m.kv_heads,
                          .num_q_heads = m.q_heads,
                          .head_dim = m.head_dim,
                          .num_slots = 1,
                          .window_size = kWindow,
                          .score_capacity = n,
                          .layers = layers.data()};
  std::vector<int32_t> table;
  for (int32_t i = 0; i < m.blocks; ++i) table.push_back(i);
  const int32_t zero = 0;
  const int32_t keep = n - m.block_size;
  const uint64_t seed = 1;
  CompressionBatch batch;
  batch.num_jobs = 1;
  batch.max_length = n;
  batch.max_keep = keep;
  batch.slots = batch.histories = batch.position_offsets = batch.prompt_lengths = &zero;
  batch.lengths = &n;
  batch.keeps = &keep;
  batch.seeds = &seed;
  batch.block_tables = batch.target_tables = table.data();
  batch.block_table_stride = m.blocks;
  PeakUpdateBatch peaks;
  peaks.num_updates = 1;
  peaks.max_length = n;
  peaks.slots = peaks.previous_lengths = &zero;
  peaks.lengths = &n;
  peaks.block_tables = table.data();
  peaks.block_table_stride = m.blocks;

  const int64_t rows = int64_t{m.layers} * m.kv_heads;
  const auto score = reinterpret_cast<float*>(filled(rows * n, DType::kF32));
  const auto other = reinterpret_cast<float*>(filled(rows * n, DType::kF32));
  const auto rope = reinterpret_cast<const float*>(filled(int64_t{n} * m.head_dim, DType::kF32));
  int32_t* kept = zeros(rows * keep);
  Backend::Limits limits{};
  limits.num_q_heads = m.q_heads;
  limits.num_kv_heads = m.kv_heads;
  limits.head_dim = m.head_dim;
  limits.window_size = kWindow;
  limits.score_capacity = limits.max_kv_len = n;
  const Buffer work = backend.allocate(
      backend.compression_workspace_bytes(limits, CompressionOptions()), MemorySpace::kDevice);
  auto* workspace = work.as<float>();
  const CompressionOpArgs args{&batch, &kv, 0, m.layers, n};
  const float scale = 1 / std::sqrt(static_cast<float>(m.head_dim));

  std::printf("%s, %s\n", m.name, to_string(dtype));
  const auto report = [&](const char* name, double flops, const std::function<void()>& body) {
    const double ms = best_ms(body);
    std::printf("  %-22s %9.3f ms", name, ms);
    if (flops > 0) std::printf("  %5.1f %% of the peak", flops / ms / 1e-3 / peak * 100);
    std::printf("\n");
  };
  const double window_flops = 2.0 * m.layers * m.q_heads * kWindow * n * m.head_dim;
  const double pair_flops = 2.0 * static_cast<double>(rows) * n * m.head_dim;
  report("peak_update", window_flops, [&] {
    backend.peak_update({&peaks, &kv, 0, m.layers, scale, 128, nullptr, n, workspace}, *stream);
  });
  report("attention_score", window_flops, [&] {
    backend.attention_score({args, scale, score, workspace}, *stream);
  });
  for (const Redundancy mode : {Redundancy::kLightning, Redundancy::kFlash}) {
    report(to_string(mode), pair_flops * (mode == Redundancy::kFlash ? n : m.block_size), [&] {
      backend.redundancy({args, mode, 0.5f, 0.4f, true, rope, m.head_dim, score, workspace},
                         *stream);
    });
  }
  report("center_redundancy", 0, [&] {
    backend.center_redundancy({args, 0.4f, rope, m.head_dim, score, workspace}, *stream);
  });
  report("normalized_history", 0, [&] {
    backend.normalized_history({args, nullptr, score}, *stream);
  });
  report("max_pool", 0, [&] { backend.max_pool({args, 5, false, score, other}, *stream); });
  report("combine", 0, [&] {
    backend.combine({args, Combine::kConvex, 0.3f, score, other, score}, *stream);
  });
  report("top_k", 0, [&] { backend.top_k({args, other, kept, keep}, *stream); });
  report("compact", 0, [&] { backend.compact({args, nullptr, kept, keep}, *stream); });
}

int run(int argc, char** argv) {
  BackendOptions options;
  DType dtype = DType::kBF16;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--isa") options.isa = value;
    if (flag == "--threads") options.num_threads = std::atoi(value.c_str());
    if (flag == "--dtype") {
      for (const DType known : {DType::kF32, DType::kF16, DType::kBF16}) {
        if (value == to_string(known)) dtype = known;
      }
    }
  }
  cpu::CpuBackend backend(options);
  const MachinePeak peak = measure_peak(backend.context());
  std::printf("%s: %.1f GFLOP/s\n", backend.info().name.c_str(), peak.flops_per_second * 1e-9);
  for (const ModelShape& shape : kShapes) bench(backend, shape, dtype, peak.flops_per_second);
  return 0;
}

}  // namespace
}  // namespace zipage

int main(int argc, char** argv) {
  try {
    return zipage::run(argc, argv);
  } catch (const zipage::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
