// Paged attention at the shape of Qwen3-8B: decode against the bytes of K and V, prefill against
// the matmul ceiling.
#include <cmath>
#include <random>

#include "backend/cuda/kernels/attention/decode.h"
#include "backend/cuda/kernels/attention/prefill.h"
#include "measure.h"

namespace zipage::bench {
namespace {

constexpr int32_t kDim = 128;
constexpr int32_t kQHeads = 32;
constexpr int32_t kKvHeads = 8;
constexpr int32_t kBlock = 256;

struct Rows {
  std::vector<int32_t> tokens, kv_lens;
};

// Pages of random numbers, rows with shuffled blocks.
class Case {
 public:
  Case(Bench& bench, const Rows& rows) : rows_(rows) {
    int32_t blocks = 0, longest = 0;
    std::vector<int32_t> begin = {0}, row_of_token;
    for (size_t r = 0; r < rows.tokens.size(); ++r) {
      blocks += (rows.kv_lens[r] + kBlock - 1) / kBlock;
      longest = std::max(longest, rows.kv_lens[r]);
      begin.push_back(begin.back() + rows.tokens[r]);
      batch.max_row_tokens = std::max(batch.max_row_tokens, rows.tokens[r]);
      for (int32_t t = 0; t < rows.tokens[r]; ++t) row_of_token.push_back(static_cast<int32_t>(r));
    }
    stride_ = (longest + kBlock - 1) / kBlock;
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    for (int32_t i = 0; i < blocks; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    tables_.assign(rows.tokens.size() * static_cast<size_t>(stride_), 0);
    size_t next = 0;
    for (size_t r = 0; r < rows.tokens.size(); ++r) {
      for (int32_t b = 0; b * kBlock < rows.kv_lens[r]; ++b) {
        tables_[r * static_cast<size_t>(stride_) + static_cast<size_t>(b)] = order[next++];
      }
    }
    const size_t page = size_t{kKvHeads} * kBlock * kDim;
    k_ = bench.random(static_cast<size_t>(blocks) * page, 0);
    v_ = bench.random(static_cast<size_t>(blocks) * page, kVOffset);
    q_ = bench.random(static_cast<size_t>(begin.back()) * kQHeads * kDim, kQOffset);
    out = bench.zeros(q_.bytes());
    begin_ = bench.upload(begin);
    lens_ = bench.upload(rows.kv_lens);
    of_token_ = bench.upload(row_of_token);
    tables_device_ = bench.upload(tables_);
    layer_.k = k_.data();
    layer_.v = v_.data();
    kv_.dtype = kv_.query_dtype = DType::kBF16;
    kv_.num_layers = 1;
    kv_.num_blocks = blocks;
    kv_.block_size = kBlock;
    kv_.num_kv_heads = kKvHeads;
    kv_.num_q_heads = kQHeads;
    kv_.head_dim = kDim;
    kv_.layers = &layer_;
    batch.num_tokens = begin.back();
    batch.num_rows = static_cast<int32_t>(rows.tokens.size());
    batch.max_kv_len = longest;
    batch.row_begin = begin_.as<int32_t>();
    batch.kv_lens = lens_.as<int32_t>();
    batch.row_of_token = of_token_.as<int32_t>();
    batch.block_tables = tables_device_.as<int32_t>();
    batch.block_table_stride = stride_;
    Backend::Limits limits{};
    limits.max_rows = batch.num_rows;
    limits.num_q_heads = kQHeads;
    limits.num_kv_heads = kKvHeads;
    limits.head_dim = kDim;
    workspace_ = bench.zeros(bench.backend->attention_workspace_bytes(limits));
    args.dtype = DType::kBF16;
    args.q = q_.data();
    args.batch = &batch;
    args.kv = &kv_;
    args.scale = 1 / std::sqrt(static_cast<float>(kDim));
    args.out = out.data();
    args.workspace = workspace_.data();
    begin_host_ = begin;
  }
  Case(const Case&) = delete;

  // Largest error of a few tokens and heads against double sums.
  double sample_error(Bench& bench) {
    const auto got = bench.download<uint16_t>(
        out.data(), static_cast<size_t>(batch.num_tokens) * kQHeads * kDim);
    double worst = 0;
    for (int n = 0; n < 40; ++n) {
      const int32_t token =
          static_cast<int32_t>((static_cast<int64_t>(n) * 7919 + n) % batch.num_tokens);
      size_t row = 0;
      while (begin_host_[row + 1] <= token) ++row;
      const int32_t head = (n * 5) % kQHeads;
      const int32_t visible = rows_.kv_lens[row] - (begin_host_[row + 1] - token) + 1;
      std::vector<double> p(static_cast<size_t>(visible)), want(kDim, 0.0);
      double largest = -INFINITY, sum = 0;
      const size_t q = (static_cast<size_t>(token) * kQHeads + static_cast<size_t>(head)) * kDim;
      for (int32_t e = 0; e < visible; ++e) {
        double dot = 0;
        for (size_t i = 0; i < kDim; ++i) {
          dot += static_cast<double>(bench.noise(kQOffset + q + i)) *
                 static_cast<double>(bench.noise(place(row, head, e) + i));
        }
        p[static_cast<size_t>(e)] = dot / std::sqrt(static_cast<double>(kDim));
        largest = std::max(largest, p[static_cast<size_t>(e)]);
      }
      for (double& x : p) sum += x = std::exp(x - largest);
      for (int32_t e = 0; e < visible; ++e) {
        for (size_t i = 0; i < kDim; ++i) {
          want[i] += p[static_cast<size_t>(e)] / sum *
                     static_cast<double>(bench.noise(kVOffset + place(row, head, e) + i));
        }
      }
      // Relative to the size of the result, which averages many values.
      double square = 0, error = 0;
      for (size_t i = 0; i < kDim; ++i) {
        square += want[i] * want[i];
        error += std::pow(static_cast<double>(bf16_to_f32(got[q + i])) - want[i], 2);
      }
      const double relative = std::sqrt(error / square);
      if (!(relative <= worst)) worst = relative;
    }
    return worst;
  }

  StepBatch batch;
  PagedAttentionArgs args{};
  Buffer out;

 private:
  static constexpr size_t kVOffset = 11111111;
  static constexpr size_t kQOffset = 22222222;
  size_t place(size_t row, int32_t head, int32_t entry) const {
    const size_t block = static_cast<size_t>(
        tables_[row * static_cast<size_t>(stride_) + static_cast<size_t>(entry / kBlock)]);
    return ((block * kKvHeads + static_cast<size_t>(head / (kQHeads / kKvHeads))) * kBlock +
            static_cast<size_t>(entry % kBlock)) *
           kDim;
  }
  Rows rows_;
  int32_t stride_ = 0;
  std::vector<int32_t> tables_, begin_host_;
  Buffer k_, v_, q_, begin_, lens_, of_token_, tables_device_, workspace_;
  LayerKvView layer_;
  PagedKvView kv_;
};

void bench_decode(Bench& bench, const char* label, const Rows& rows) {
  Case c(bench, rows);
  double bytes = 0;
  for (const int32_t len : rows.kv_lens) bytes += 2.0 * len * kKvHeads * kDim * 2;
  const std::pair<DecodeVariant, const char*> variants[] = {
      {DecodeVariant::kDefault, "as chosen"},
      {DecodeVariant::kFourWarps, "4 warps x 2 x 32"},
      {DecodeVariant::kEightWarps, "8 warps x 2 x 16"},
      {DecodeVariant::kTensorCopy, "tensor copy"}};
  const int ops = bytes > 200e6 ? 4 : 20;
  for (const auto& [variant, what] : variants) {
    bench.backend->fill_zero(c.out.data(), c.out.bytes(), *bench.stream);
    const double us = bench.time_us(ops, [&, v = variant](int) {
      launch_paged_attention_decode(c.args, bench.backend->context(), bench.cuda().handle(), v);
    });
    const double error = c.sample_error(bench);
    char name[128];
    std::snprintf(name, sizeof name, "decode %s, %s (error %.1e%s)", label, what, error,
                  error < 2e-2 ? "" : " WRONG");
    bench.print_bytes(name, us, bytes);
  }
}

void bench_prefill(Bench& bench, int32_t tokens, int32_t kv_len) {
  Case c(bench, {{tokens}, {kv_len}});
  const double pairs =
      static_cast<double>(tokens) * (kv_len - tokens) + 0.5 * tokens * (tokens + 1.0);
  for (const auto& [variant, what] : {std::pair{PrefillVariant::kDefault, "chosen"},
                                      {PrefillVariant::kFourWarps, "128"},
                                      {PrefillVariant::kEightWarps, "256"}}) {
    bench.backend->fill_zero(c.out.data(), c.out.bytes(), *bench.stream);
    const double us = bench.time_us(4, [&, v = variant](int) {
      launch_paged_attention_prefill(c.args, false, bench.backend->context(), bench.cuda().handle(),
                                     v);
    });
    const double error = c.sample_error(bench);
    char name[128];
    std::snprintf(name, sizeof name, "prefill %d of %d, %s queries a block (error %.1e%s)", tokens,
                  kv_len, what, error, error < 2e-2 ? "" : " WRONG");
    bench.print_flops(name, us, 4.0 * pairs * kQHeads * kDim);
  }
}

}  // namespace

void bench_attention(Bench& bench) {
  Rows trace;
  std::mt19937 engine(4);
  for (int i = 0; i < 157; ++i) {
    // Three in four live between compressions, the others grow towards the first.
    const bool capped = i % 4 != 0;
    trace.tokens.push_back(1);
    trace.kv_lens.push_back(capped ? 1793 + static_cast<int32_t>(engine() % 256)
                                   : 64 + static_cast<int32_t>(engine() % 1984));
  }
  bench_decode(bench, "157 rows as the trace", trace);
  bench_decode(bench, "1 x 2048", {{1}, {2048}});
  bench_decode(bench, "16 x 1800", {std::vector<int32_t>(16, 1), std::vector<int32_t>(16, 1800)});
  bench_decode(bench, "64 x 8192", {std::vector<int32_t>(64, 1), std::vector<int32_t>(64, 8192)});
  bench_prefill(bench, 512, 512);
  bench_prefill(bench, 2048, 2048);
  bench_prefill(bench, 2048, 8192);
  bench_prefill(bench, 8192, 8192);
}

}  // namespace zipage::bench
