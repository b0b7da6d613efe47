#include "backend/cpu/linear.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/ops.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage::cpu {
namespace {

const PackedLinear& packed(const LinearWeight* weight) {
  const auto* linear = dynamic_cast<const PackedLinear*>(weight);
  ZIPAGE_CHECK(linear != nullptr);
  return *linear;
}

LinearKernel choose_kernel(PanelFormat format, const CpuContext& context) {
#if defined(__x86_64__)
  if (context.isa >= Isa::kAvx2) {
    switch (format) {
      case PanelFormat::kBF16:
        return linear_bf16_avx2;
      case PanelFormat::kF16:
        return linear_f16_avx2;
      case PanelFormat::kF32:
        return linear_f32_avx2;
    }
  }
#endif
  switch (format) {
    case PanelFormat::kBF16:
      return linear_bf16_scalar;
    case PanelFormat::kF16:
      return linear_f16_scalar;
    case PanelFormat::kF32:
      return linear_f32_scalar;
  }
  return nullptr;
}

// Panels a piece: few enough pieces that each streams a long run of memory, enough that no thread waits long for another.
int64_t panels_per_piece(int64_t num_panels, int64_t num_threads) {
  if (num_threads == 1) return num_panels;
  const int64_t share = num_panels / num_threads;
  const int64_t pieces = num_threads * std::clamp<int64_t>(share / 4, 1, 8);
  return (num_panels + pieces - 1) / pieces;
}

// One output's weights, from its panel.
void unpack_row(const LinearSegment& segment, int64_t output, int64_t in_features, float* row) {
  const std::byte* panel = segment.panels.data() + output / kPanelOutputs * segment.panel_bytes;
  const int64_t n = output % kPanelOutputs;
  const auto* half = reinterpret_cast<const uint16_t*>(panel);
  const auto* full = reinterpret_cast<const float*>(panel);
  for (int64_t k = 0; k < in_features; ++k) {
    switch (segment.format) {
      case PanelFormat::kBF16:
        row[k] = bf16_to_f32(half[(k / 2 * kPanelOutputs + n) * 2 + k % 2]);
        break;
      case PanelFormat::kF16:
        row[k] = f16_to_f32(half[k * kPanelOutputs + n]);
        break;
      case PanelFormat::kF32:
        row[k] = full[k * kPanelOutputs + n];
        break;
    }
  }
}

}  // namespace

void linear(const LinearArgs& args, CpuContext& context) {
  const PackedLinear& weight = packed(args.weight);
  if (args.dtype != DType::kF32 || args.out_dtype != DType::kF32) {
    fail_invalid("linear on a CPU: {} to {}, expected f32 to f32", to_string(args.dtype),
                 to_string(args.out_dtype));
  }
  if (args.num_tokens == 0) return;
  for (const LinearSegment& segment : weight.segments()) {
    LinearTask task = {};
    task.panels = segment.panels.data();
    task.panel_bytes = segment.panel_bytes;
    task.num_outputs = segment.num_outputs;
    task.in_features = weight.in_features();
    task.bias = weight.bias() == nullptr ? nullptr : weight.bias() + segment.first_output;
    task.x = static_cast<const float*>(args.x);
    task.x_stride = weight.in_features();
    task.num_rows = args.num_tokens;
    task.out = static_cast<float*>(args.out) + segment.first_output;
    task.out_stride = weight.out_features();
    const LinearKernel kernel = choose_kernel(segment.format, context);
    const int64_t grain = panels_per_piece(segment.num_panels(), context.pool->num_threads());
    context.pool->parallel_for(segment.num_panels(), grain, [&](int64_t begin, int64_t end) {
      LinearTask piece = task;
      piece.panel_begin = begin;
      piece.panel_end = end;
      kernel(piece);
    });
  }
}

void embed(const EmbedArgs& args, CpuContext& context) {
  const PackedLinear& table = packed(args.table);
  ZIPAGE_CHECK(args.dtype == DType::kF32);
  ZIPAGE_CHECK_EQ(args.hidden, table.in_features());
  context.pool->parallel_for(args.num_tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t id = args.ids[t];
      if (id < 0 && args.previous_tokens != nullptr) id = args.previous_tokens[-1 - id];
      if (id < 0 || id >= table.out_features()) {
        fail_invalid("token id {}: expected 0 to {}", id, table.out_features() - 1);
      }
      auto segment = table.segments().begin();
      while (id >= segment->first_output + segment->num_outputs) ++segment;
      unpack_row(*segment, id - segment->first_output, args.hidden,
                 static_cast<float*>(args.out) + t * args.hidden);
    }
  });
}

}  // namespace zipage::cpu
