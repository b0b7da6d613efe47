// Speed of the CPU's linear op: per shape and number of rows, and its share of this machine's read
// bandwidth (few rows) or of its f32 multiply-add peak (many rows), both measured in the same run.
// usage: bench_ops_cpu_linear [--isa NAME] [--threads N] [--dtype bf16|f16|f32|q8_0|...] [--compute
// f32|bf16] [--model WORD]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/error.h"
#include "machine_peak.h"

namespace zipage {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct LayerShape {
  const char* model;
  const char* name;
  int64_t out, in;
};

constexpr LayerShape kShapes[] = {
    {"reasoner", "qkv", 640, 384},           {"reasoner", "o", 384, 384},
    {"reasoner", "gate_up", 2048, 384},      {"reasoner", "down", 384, 1024},
    {"reasoner", "lm_head", 320, 384},       {"smollm2-135m", "qkv", 960, 576},
    {"smollm2-135m", "gate_up", 3072, 576},  {"smollm2-135m", "down", 576, 1536},
    {"smollm2-135m", "lm_head", 49152, 576}, {"qwen3-0.6b", "qkv", 4096, 1024},
    {"qwen3-0.6b", "gate_up", 6144, 1024},   {"qwen3-0.6b", "down", 1024, 3072},
    {"qwen3-0.6b", "lm_head", 151936, 1024},
};

struct Options {
  BackendOptions backend;
  DType weights = DType::kBF16;
  std::string model;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--isa") options.backend.isa = value;
    if (flag == "--threads") options.backend.num_threads = std::atoi(value.c_str());
    if (flag == "--compute" && value == "bf16") options.backend.dtype = DType::kBF16;
    if (flag == "--model") options.model = value;
    if (flag == "--dtype") {
      for (const DType dtype :
           {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
            DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
        if (value == to_string(dtype)) options.weights = dtype;
      }
    }
  }
  return options;
}

// Layers of one shape as a model would have them: so many copies that a step finds them outside the
// caches it would in the real model (about 64 MB for the small shapes), one call each.
class Stack {
 public:
  Stack(cpu::CpuBackend& backend, const LayerShape& shape, DType dtype, int64_t max_rows)
      : backend_(backend), shape_(shape) {
    const int64_t bytes = dtype_bytes(dtype, shape.out * shape.in);
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    std::mt19937 random(1);
    for (auto& b : data)
      b = static_cast<std::byte>(random() & 0x3f);  // small finite numbers in every type
    HostTensor tensor{"w", dtype, {shape.out, shape.in}, data.data()};
    const int64_t copies = std::max<int64_t>(1, (int64_t{128} << 20) / bytes);
    for (int64_t i = 0; i < copies; ++i) weights_.push_back(backend.make_linear({&tensor, 1}, {}));
    x_.assign(static_cast<size_t>(max_rows * shape.in), 0.5f);
    out_.resize(static_cast<size_t>(max_rows * shape.out));
    stream_ = backend.create_stream(false);
  }
  int64_t weight_bytes() const { return static_cast<int64_t>(weights_[0]->bytes()); }
  // Seconds of the fastest call, each on weights that no cache holds any more: other programs on
  // the machine disturb some calls, not all.
  double best_call(int64_t rows, double seconds) {
    double best = 1e30;
    const double end = now_seconds() + seconds;
    for (size_t i = 0; i < 8 || now_seconds() < end; ++i) {
      const double begin = now_seconds();
      backend_.linear({DType::kF32, DType::kF32, weights_[i % weights_.size()].get(), x_.data(),
                       static_cast<int32_t>(rows), out_.data()},
                      *stream_);
      best = std::min(best, now_seconds() - begin);
    }
    return best;
  }

 private:
  cpu::CpuBackend& backend_;
  LayerShape shape_;
  std::vector<std::unique_ptr<LinearWeight>> weights_;
  std::vector<float> x_, out_;
  std::unique_ptr<Stream> stream_;
};

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  cpu::CpuBackend backend(options.backend);
  const MachinePeak peak = measure_peak(backend.context());
  std::printf("%s\nread bandwidth %.1f GB/s, f32 multiply-add peak %.0f GFLOP/s, weights %s\n",
              backend.info().name.c_str(), peak.read_bytes_per_second * 1e-9,
              peak.flops_per_second * 1e-9, to_string(options.weights));
  std::printf("%-13s %-8s %7s %6s %5s %10s %8s %6s %9s %6s\n", "model", "layer", "out", "in",
              "rows", "us", "GB/s", "share", "GFLOP/s", "share");
  for (const LayerShape& shape : kShapes) {
    if (!options.model.empty() && options.model != shape.model) continue;
    if (shape.in % packed_block_elements(options.weights) != 0) continue;
    Stack stack(backend, shape, options.weights, 256);
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      const double seconds = stack.best_call(rows, 0.2);
      const double bytes = static_cast<double>(stack.weight_bytes()) / seconds;
      const double flops = 2.0 * static_cast<double>(rows * shape.out * shape.in) / seconds;
      std::printf("%-13s %-8s %7ld %6ld %5ld %10.1f %8.1f %5.0f%% %9.1f %5.0f%%\n", shape.model,
                  shape.name, static_cast<long>(shape.out), static_cast<long>(shape.in),
                  static_cast<long>(rows), seconds * 1e6, bytes * 1e-9,
                  100 * bytes / peak.read_bytes_per_second, flops * 1e-9,
                  100 * flops / peak.flops_per_second);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace zipage

int main(int argc, char** argv) {
  try {
    return zipage::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
