// A layer of Qwen3-8B as a decode step of one to eight requests runs it: what the ops cost one
// behind the other, where a kernel starts while the one ahead of it ends.
#include <cmath>
#include <numeric>

#include "backend/cuda/cuda_linear.h"
#include "measure.h"

namespace zipage::bench {
namespace {

constexpr int32_t kHidden = 4096, kWide = 12288, kQHeads = 32, kKvHeads = 8, kDim = 128,
                  kBlock = 256, kLen = 1700, kPosition = 3000;
constexpr int kLayers = 4;  // their weights are far larger than the L2

struct Layer {
  std::unique_ptr<LinearWeight> qkv, o, gate_up, down;
  Buffer k, v;
};

class Step {
 public:
  explicit Step(Bench& bench) : bench_(bench) {
    constexpr int32_t kQkv = (kQHeads + 2 * kKvHeads) * kDim;
    for (int i = 0; i < kLayers; ++i) {
      const auto offset = static_cast<size_t>(i) * 1001;
      Layer& layer = layers_.emplace_back();
      layer.qkv = random_weight(bench, kQkv, kHidden, offset);
      layer.o = random_weight(bench, kHidden, kQHeads * kDim, offset + 100);
      layer.gate_up = random_weight(bench, 2 * kWide, kHidden, offset + 200);
      layer.down = random_weight(bench, kHidden, kWide, offset + 300);
      layer.k = bench.random(kPages * kKvHeads * kBlock * kDim, offset);
      layer.v = bench.random(kPages * kKvHeads * kBlock * kDim, offset + 500);
    }
    std::vector<int32_t> table(kPages), lens(kMaxRows, kLen), slots, positions(kMaxRows, kPosition),
        begin(kMaxRows + 1);
    std::iota(table.begin(), table.end(), 0);
    std::iota(begin.begin(), begin.end(), 0);
    for (size_t r = 0; r < kMaxRows; ++r)
      slots.push_back(static_cast<int32_t>(r * kBlocks * kBlock) + kLen - 1);
    const auto upload = [&](const std::vector<int32_t>& values) {
      arrays_.push_back(bench.upload(values));
      return arrays_.back().as<int32_t>();
    };
    batch_.max_row_tokens = 1;
    batch_.max_kv_len = kLen;
    batch_.block_tables = upload(table);
    batch_.block_table_stride = kBlocks;
    batch_.kv_lens = upload(lens);
    batch_.kv_slots = upload(slots);
    batch_.positions = upload(positions);
    batch_.row_begin = batch_.row_of_token = upload(begin);
    kv_.dtype = kv_.query_dtype = DType::kBF16;
    kv_.num_blocks = kPages;
    kv_.block_size = kBlock;
    kv_.num_kv_heads = kKvHeads;
    kv_.num_q_heads = kQHeads;
    kv_.head_dim = kDim;
    kv_.layers = &view_;
    Backend::Limits limits{};
    limits.max_rows = kMaxRows;
    limits.num_q_heads = kQHeads;
    limits.num_kv_heads = kKvHeads;
    limits.head_dim = kDim;
    workspace_ = bench.zeros(bench.backend->attention_workspace_bytes(limits));
  }

  // Microseconds of a layer. `attend`: the fused op, or the two it stands for; `next`: each product
  // knows the one behind it.
  double time_us(int32_t rows, bool attend, bool next) {
    batch_.num_tokens = batch_.num_rows = rows;
    return bench_.time_us(2 * kLayers, [&](int i) {
      const Layer& following = layers_[static_cast<size_t>((i + 1) % kLayers)];
      run(layers_[static_cast<size_t>(i % kLayers)], following, rows, attend, next);
    });
  }

 private:
  static constexpr size_t kMaxRows = 8, kBlocks = 8, kPages = kMaxRows * kBlocks;

  void run(const Layer& layer, const Layer& following, int32_t rows, bool attend, bool next) {
    Backend& backend = *bench_.backend;
    Stream& stream = *bench_.stream;
    const auto norm = [&] {
      backend.rms_norm({DType::kBF16, hidden_.data(), residual_.data(), norm_.as<float>(), 1e-6f,
                        rows, kHidden, hidden_.data()},
                       stream);
    };
    const auto linear = [&](const LinearWeight& weight, const Buffer& x, const Buffer& out,
                            const LinearWeight& behind) {
      backend.linear({DType::kBF16, DType::kBF16, &weight, x.data(), rows, out.data(),
                      next ? &behind : nullptr},
                     stream);
    };
    norm();
    linear(*layer.qkv, hidden_, wide_, *layer.o);
    view_.k = layer.k.data();
    view_.v = layer.v.data();
    AttentionPrepareArgs prepare{};
    prepare.dtype = DType::kBF16;
    prepare.qkv = wide_.data();
    prepare.q_norm = prepare.k_norm = norm_.as<float>();
    prepare.norm_eps = 1e-6f;
    prepare.rope_cos_sin = rope_.as<float>();
    prepare.rotary_dim = kDim;
    prepare.batch = &batch_;
    prepare.kv = &kv_;
    prepare.q_out = inner_.data();
    PagedAttentionArgs attention{};
    attention.dtype = DType::kBF16;
    attention.q = inner_.data();
    attention.batch = &batch_;
    attention.kv = &kv_;
    attention.scale = 1 / std::sqrt(static_cast<float>(kDim));
    attention.out = attention_.data();
    attention.workspace = workspace_.data();
    if (attend) {
      backend.attend(prepare, attention, stream);
    } else {
      backend.attention_prepare(prepare, stream);
      backend.paged_attention(attention, stream);
    }
    linear(*layer.o, attention_, hidden_, *layer.gate_up);
    norm();
    linear(*layer.gate_up, hidden_, wide_, *layer.down);
    backend.silu_mul({DType::kBF16, wide_.data(), rows, kWide, inner_.data()}, stream);
    linear(*layer.down, inner_, hidden_, *following.qkv);
  }

  Bench& bench_;
  std::vector<Layer> layers_;
  std::vector<Buffer> arrays_;
  Buffer norm_ = bench_.upload(std::vector<float>(kHidden, 1.0f));
  Buffer rope_ = bench_.upload(std::vector<float>((kPosition + 1) * size_t{kDim}, 0.7f));
  Buffer hidden_ = bench_.random(kMaxRows * kHidden);
  Buffer residual_ = bench_.random(kMaxRows * kHidden);
  Buffer wide_ = bench_.random(kMaxRows * 2 * kWide);
  Buffer inner_ = bench_.random(kMaxRows * kWide);
  Buffer attention_ = bench_.random(kMaxRows * kQHeads * kDim);
  Buffer workspace_;
  LayerKvView view_;
  PagedKvView kv_;
  StepBatch batch_;
};

}  // namespace

void bench_layer(Bench& bench) {
  Step step(bench);
  constexpr double kWeights =
      2.0 * kHidden * (2 * kQHeads * kDim + 2 * kKvHeads * kDim + 3.0 * kWide);
  for (const int32_t rows : {1, 2, 4, 8}) {
    const double bytes = kWeights + 4.0 * rows * kLen * kKvHeads * kDim;
    for (const auto& [attend, next] : {std::pair{false, false}, {true, false}, {true, true}}) {
      char name[96];
      std::snprintf(name, sizeof name, "layer of %d x %d, %s%s", rows, kLen,
                    attend ? "attend" : "prepare, attention", next ? ", next known" : "");
      bench.print_bytes(name, step.time_us(rows, attend, next), bytes);
    }
  }
}

}  // namespace zipage::bench
