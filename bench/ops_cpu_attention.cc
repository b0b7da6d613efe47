// Speed of the CPU's attention and sampler: decode in GB/s of K and V and its share of the read
// bandwidth, prefill in GFLOP/s and its share of the f32 multiply-add peak, both measured in the
// same run; the sampler in microseconds a row. usage: bench_ops_cpu_attention [--isa NAME]
// [--threads N] [--kv f32|bf16|f16] [--part decode|prefill|sample] [--model WORD]
#include <algorithm>
#include <chrono>
#include <cmath>
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

struct Options {
  BackendOptions backend;
  DType kv = DType::kBF16;
  std::string part, model;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--isa") options.backend.isa = value;
    if (flag == "--threads") options.backend.num_threads = std::atoi(value.c_str());
    if (flag == "--part") options.part = value;
    if (flag == "--model") options.model = value;
    if (flag == "--kv") {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        if (value == to_string(dtype)) options.kv = dtype;
      }
    }
  }
  return options;
}

struct HeadShape {
  const char* model;
  int32_t num_q_heads, num_kv_heads, head_dim;
};

constexpr HeadShape kHeads[] = {{"reasoner", 6, 2, 64},
                                {"smollm2-135m", 9, 3, 64},
                                {"qwen3-0.6b", 16, 8, 128},
                                {"qwen2.5-0.5b", 14, 2, 64}};

// `rows` requests of the same length, each computing `tokens` tokens, in `layers` layers of their
// own.
class AttentionBench {
 public:
  AttentionBench(cpu::CpuBackend& backend,
                 const HeadShape& heads,
                 DType dtype,
                 int32_t block_size,
                 int32_t rows,
                 int32_t tokens,
                 int32_t kv_len,
                 int32_t layers)
      : backend_(backend), stream_(backend.create_stream(false)) {
    const int32_t blocks = (kv_len + block_size - 1) / block_size;
    kv_.dtype = dtype;
    kv_.num_layers = layers;
    kv_.num_blocks = rows * blocks;
    kv_.block_size = block_size;
    kv_.num_kv_heads = heads.num_kv_heads;
    kv_.num_q_heads = heads.num_q_heads;
    kv_.head_dim = heads.head_dim;
    const int64_t entry_bytes = dtype_bytes(dtype, heads.head_dim) * heads.num_kv_heads;
    const auto layer_bytes = static_cast<size_t>(entry_bytes * kv_.num_blocks * block_size);
    read_bytes_ = 2.0 * static_cast<double>(entry_bytes) * kv_len * rows;
    for (int32_t j = 0; j < tokens; ++j) {
      flops_ += 4.0 * heads.num_q_heads * heads.head_dim * (kv_len - tokens + j + 1) * rows;
    }
    std::mt19937 random(1);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < kv_.num_blocks; ++i) ids.push_back(i);
    std::shuffle(ids.begin(), ids.end(), random);
    tables_ = ids;
    for (int32_t r = 0; r <= rows; ++r) row_begin_.push_back(r * tokens);
    kv_lens_.assign(static_cast<size_t>(rows), kv_len);
    for (int32_t i = 0; i < layers; ++i) {
      for (std::byte** pages : {&layer_[0], &layer_[1]}) {
        memory_.push_back(backend.allocate(layer_bytes, MemorySpace::kDevice));
        *pages = memory_.back().data();
        // Small finite numbers in every type.
        for (size_t b = 0; b < layer_bytes; ++b)
          (*pages)[b] = static_cast<std::byte>((b * 2654435761u >> 13) & 0x3d);
      }
      LayerKvView view;
      view.k = layer_[0];
      view.v = layer_[1];
      layers_.push_back(view);
    }
    kv_.layers = layers_.data();
    batch_.num_rows = rows;
    batch_.num_tokens = rows * tokens;
    batch_.max_row_tokens = tokens;
    batch_.max_kv_len = kv_len;
    batch_.row_begin = row_begin_.data();
    batch_.kv_lens = kv_lens_.data();
    batch_.block_tables = tables_.data();
    batch_.block_table_stride = blocks;
    Backend::Limits limits{};
    limits.max_tokens = batch_.num_tokens;
    limits.max_rows = rows;
    limits.max_kv_len = kv_len;
    limits.num_q_heads = heads.num_q_heads;
    limits.num_kv_heads = heads.num_kv_heads;
    limits.head_dim = heads.head_dim;
    limits.block_size = block_size;
    workspace_.resize(backend.attention_workspace_bytes(limits));
    std::normal_distribution<float> normal(0, 1);
    q_.resize(static_cast<size_t>(batch_.num_tokens) * heads.num_q_heads * heads.head_dim);
    for (float& x : q_) x = normal(random);
    out_.resize(q_.size());
  }

  // Seconds of a layer: the best of many calls, each on a layer that has left the caches since.
  double seconds() {
    double best = 1e30;
    const double start = now_seconds();
    for (int pass = 0; pass < 3 || (now_seconds() - start < 0.4 && pass < 1000); ++pass) {
      for (int32_t i = 0; i < kv_.num_layers; ++i) {
        const float scale = 1.0f / std::sqrt(static_cast<float>(kv_.head_dim));
        const double begin = now_seconds();
        backend_.paged_attention(
            {DType::kF32, q_.data(), &batch_, &kv_, i, scale, out_.data(), workspace_.data()},
            *stream_);
        best = std::min(best, now_seconds() - begin);
      }
    }
    return best;
  }

  double read_bytes() const { return read_bytes_; }
  double flops() const { return flops_; }

 private:
  cpu::CpuBackend& backend_;
  std::unique_ptr<Stream> stream_;
  PagedKvView kv_;
  StepBatch batch_;
  std::byte* layer_[2] = {};
  std::vector<Buffer> memory_;
  std::vector<LayerKvView> layers_;
  std::vector<int32_t> tables_, row_begin_, kv_lens_;
  std::vector<float> q_, out_;
  std::vector<std::byte> workspace_;
  double read_bytes_ = 0, flops_ = 0;
};

void bench_decode(cpu::CpuBackend& backend, const MachinePeak& peak, const Options& options) {
  const DType kv = options.kv;
  std::printf("\ndecode, kv %s\n%-14s %6s %5s %7s %10s %8s %7s\n", to_string(kv), "heads of",
              "block", "rows", "length", "us/layer", "GB/s", "share");
  for (const HeadShape& heads : kHeads) {
    if (!options.model.empty() && options.model != heads.model) continue;
    for (const int32_t block_size : {16, 256}) {
      for (const auto& [rows, kv_len] :
           {std::pair{1, 512}, {1, 8192}, {1, 32768}, {16, 256}, {16, 2048}, {64, 512}}) {
        const int64_t bytes =
            2 * dtype_bytes(kv, heads.head_dim) * heads.num_kv_heads * rows * kv_len;
        const auto layers = static_cast<int32_t>(std::max<int64_t>(1, (int64_t{96} << 20) / bytes));
        AttentionBench bench(backend, heads, kv, block_size, rows, 1, kv_len, layers);
        const double seconds = bench.seconds();
        const double rate = bench.read_bytes() / seconds;
        std::printf("%-14s %6d %5d %7d %10.1f %8.2f %6.0f%%\n", heads.model, block_size, rows,
                    kv_len, seconds * 1e6, rate * 1e-9, 100 * rate / peak.read_bytes_per_second);
      }
    }
  }
}

void bench_prefill(cpu::CpuBackend& backend, const MachinePeak& peak, const Options& options) {
  const DType kv = options.kv;
  std::printf("\nprefill, kv %s\n%-14s %6s %7s %7s %10s %8s %7s\n", to_string(kv), "heads of",
              "block", "tokens", "length", "us/layer", "GFLOP/s", "share");
  for (const HeadShape& heads : kHeads) {
    if (!options.model.empty() && options.model != heads.model) continue;
    for (const int32_t block_size : {16, 256}) {
      for (const auto& [tokens, kv_len] :
           {std::pair{64, 64}, {256, 2048}, {1024, 1024}, {4, 4096}}) {
        AttentionBench bench(backend, heads, kv, block_size, 1, tokens, kv_len, 1);
        const double seconds = bench.seconds();
        const double rate = bench.flops() / seconds;
        std::printf("%-14s %6d %7d %7d %10.1f %8.2f %6.0f%%\n", heads.model, block_size, tokens,
                    kv_len, seconds * 1e6, rate * 1e-9, 100 * rate / peak.flops_per_second);
      }
    }
  }
}

void bench_sample(cpu::CpuBackend& backend) {
  std::printf("\nsample\n%8s %5s %-24s %10s\n", "vocab", "rows", "choice", "us/row");
  const auto stream = backend.create_stream(false);
  for (const int32_t vocab : {320, 49152, 151936}) {
    for (const int32_t rows : {1, 16}) {
      std::mt19937 random(1);
      std::normal_distribution<float> normal(0, 3);
      std::vector<float> logits(static_cast<size_t>(rows) * vocab),
          logprobs(static_cast<size_t>(rows) * 21);
      for (float& x : logits) x = normal(random);
      std::vector<int32_t> tokens(static_cast<size_t>(rows)), ids(logprobs.size());
      Backend::Limits limits{};
      limits.max_rows = rows;
      limits.vocab = vocab;
      std::vector<std::byte> workspace(backend.sample_workspace_bytes(limits));
      for (const char* choice : {"greedy", "greedy, 20 logprobs", "temperature", "top-k 50",
                                 "top-p 0.9", "typical 0.9"}) {
        std::vector<SampleRow> choices(static_cast<size_t>(rows));
        for (SampleRow& row : choices) {
          const std::string name = choice;
          row.temperature = name.starts_with("greedy") ? 0.0f : 0.8f;
          if (name == "top-k 50") row.top_k = 50;
          if (name == "top-p 0.9") row.top_p = 0.9f;
          if (name == "typical 0.9") row.typical_p = 0.9f;
          if (name.ends_with("logprobs")) row.num_logprobs = 20;
        }
        SampleArgs args{};
        args.logits = logits.data();
        args.num_rows = rows;
        args.vocab = vocab;
        args.rows = choices.data();
        args.max_logprobs = 20;
        args.tokens = tokens.data();
        args.token_logprobs = logprobs.data() + rows * 20;
        args.top_ids = ids.data();
        args.top_logprobs = logprobs.data();
        args.workspace = workspace.data();
        double best = 1e30;
        for (int pass = 0; pass < 20; ++pass) {
          const double begin = now_seconds();
          backend.sample(args, *stream);
          best = std::min(best, now_seconds() - begin);
        }
        std::printf("%8d %5d %-24s %10.1f\n", vocab, rows, choice, best / rows * 1e6);
      }
    }
  }
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  cpu::CpuBackend backend(options.backend);
  const MachinePeak peak = measure_peak(backend.context());
  std::printf("%s\nread %.2f GB/s, multiply-add %.1f GFLOP/s\n", backend.info().name.c_str(),
              peak.read_bytes_per_second * 1e-9, peak.flops_per_second * 1e-9);
  if (options.part.empty() || options.part == "decode") bench_decode(backend, peak, options);
  if (options.part.empty() || options.part == "prefill") bench_prefill(backend, peak, options);
  if (options.part.empty() || options.part == "sample") bench_sample(backend);
  return 0;
}

}  // namespace
}  // namespace zipage

int main(int argc, char** argv) {
  try {
    return zipage::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
