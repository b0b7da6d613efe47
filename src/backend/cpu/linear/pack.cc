// Packs weight matrices into panels, once, at load.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/linear/quant_panel.h"
#include "base/error.h"
#include "tensor/dequantize.h"

namespace zipage::cpu {
namespace {

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

PanelFormat choose_format(const HostTensor& part) {
  switch (part.dtype) {
    case DType::kBF16:
      return PanelFormat::kBF16;
    case DType::kF16:
      return PanelFormat::kF16;
    case DType::kF32:
      return PanelFormat::kF32;
    case DType::kQ8_0:
      return PanelFormat::kQ8;
    case DType::kQ4_0:
      return PanelFormat::kQ4;
    case DType::kQ4_1:
      return PanelFormat::kQ4Min;
    case DType::kQ5_0:
      return PanelFormat::kQ5;
    case DType::kQ5_1:
      return PanelFormat::kQ5Min;
    case DType::kQ4_K:
      return PanelFormat::kQ4K;
    case DType::kQ5_K:
      return PanelFormat::kQ5K;
    case DType::kQ6_K:
      return PanelFormat::kQ6K;
    default:
      break;
  }
  fail(StatusCode::kUnimplemented, "tensor '{}': a CPU cannot multiply by weights of type {}",
       part.name, to_string(part.dtype));
}

int64_t bytes_per_panel(PanelFormat format, int64_t in_features) {
  switch (format) {
    case PanelFormat::kBF16:
      return round_up(in_features, kInputPadding) * kPanelOutputs * 2;
    case PanelFormat::kF16:
      return in_features * kPanelOutputs * 2;
    case PanelFormat::kF32:
      return in_features * kPanelOutputs * 4;
    default: {
      const QuantLayout layout = quant_layout(format);
      return in_features / layout.group_inputs() * layout.group_bytes();
    }
  }
}

// Writes row `n` (of 16) of a panel of plain elements.
void pack_row(
    PanelFormat format, const std::byte* row, int64_t in_features, int64_t n, std::byte* panel) {
  if (format == PanelFormat::kF32) {
    for (int64_t k = 0; k < in_features; ++k) {
      std::memcpy(panel + (k * kPanelOutputs + n) * 4, row + k * 4, 4);
    }
    return;
  }
  for (int64_t k = 0; k < in_features; ++k) {
    const int64_t place = format == PanelFormat::kBF16 ? (k / 2 * kPanelOutputs + n) * 2 + k % 2
                                                       : k * kPanelOutputs + n;
    std::memcpy(panel + place * 2, row + k * 2, 2);
  }
}

void check_parts(std::span<const HostTensor> parts, std::span<const HostTensor> bias) {
  if (parts.empty()) fail_invalid("a linear layer needs at least one weight tensor");
  if (!bias.empty() && bias.size() != parts.size()) {
    fail_invalid("tensor '{}': {} biases for {} weights", parts[0].name, bias.size(), parts.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const HostTensor& part = parts[i];
    if (part.shape.size() != 2) {
      fail_invalid("tensor '{}': shape {}, expected [out, in]", part.name, to_string(part.shape));
    }
    if (part.shape[0] < 1 || part.shape[1] < 1 || part.shape[1] != parts[0].shape[1]) {
      fail_invalid("tensor '{}': shape {}, expected [out, {}]", part.name, to_string(part.shape),
                   parts[0].shape[1]);
    }
    if (part.shape[1] % packed_block_elements(part.dtype) != 0) {
      fail_invalid("tensor '{}': {} inputs of type {}, expected a multiple of {}", part.name,
                   part.shape[1], to_string(part.dtype), packed_block_elements(part.dtype));
    }
    if (!bias.empty() && bias[i].shape != Shape{part.shape[0]}) {
      fail_invalid("tensor '{}': shape {}, expected [{}]", bias[i].name, to_string(bias[i].shape),
                   part.shape[0]);
    }
  }
}

// The tensors of one segment and the rows that they hold.
struct RowSource {
  const HostTensor* part;
  int64_t begin, end;  // in the segment
};

LinearSegment pack_segment(PanelFormat format,
                           std::span<const HostTensor> parts,
                           const CpuContext& context) {
  const int64_t in_features = parts[0].shape[1];
  std::vector<RowSource> sources;
  LinearSegment segment;
  segment.format = format;
  for (const HostTensor& part : parts) {
    sources.push_back({&part, segment.num_outputs, segment.num_outputs + part.shape[0]});
    segment.num_outputs += part.shape[0];
  }
  segment.panel_bytes = bytes_per_panel(format, in_features);
  segment.panels = allocate_memory(static_cast<size_t>(segment.panel_bytes * segment.num_panels()));
  context.pool->parallel_for(segment.num_panels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      std::byte* panel = segment.panels.data() + p * segment.panel_bytes;
      std::memset(panel, 0, static_cast<size_t>(segment.panel_bytes));
      for (int64_t n = 0; n < kPanelOutputs; ++n) {
        const int64_t output = p * kPanelOutputs + n;
        for (const RowSource& source : sources) {
          if (output < source.begin || output >= source.end) continue;
          const int64_t row_bytes = dtype_bytes(source.part->dtype, in_features);
          const std::byte* row = source.part->data + (output - source.begin) * row_bytes;
          if (is_quant(format)) {
            pack_quant_row(source.part->dtype, row, in_features, n, format, panel);
          } else {
            pack_row(format, row, in_features, n, panel);
          }
        }
      }
    }
  });
  return segment;
}

}  // namespace

std::unique_ptr<PackedLinear> pack_linear(std::span<const HostTensor> parts,
                                          std::span<const HostTensor> bias,
                                          const CpuContext& context) {
  check_parts(parts, bias);
  auto linear = std::make_unique<PackedLinear>();
  linear->in_features_ = parts[0].shape[1];
  for (size_t begin = 0; begin < parts.size();) {
    const PanelFormat format = choose_format(parts[begin]);
    size_t end = begin + 1;
    while (end < parts.size() && choose_format(parts[end]) == format) ++end;
    LinearSegment segment = pack_segment(format, parts.subspan(begin, end - begin), context);
    segment.first_output = linear->out_features_;
    linear->out_features_ += segment.num_outputs;
    linear->segments_.push_back(std::move(segment));
    begin = end;
  }
  if (!bias.empty()) {
    const int64_t padded =
        linear->out_features_ + kPanelOutputs - 1;  // a kernel may load a whole panel's
    linear->bias_ = allocate_memory(static_cast<size_t>(padded) * sizeof(float));
    float* to = linear->bias_.as<float>();
    std::fill_n(to, padded, 0.0f);
    for (const HostTensor& part : bias) {
      const std::vector<float> values = to_f32(part);
      to = std::copy(values.begin(), values.end(), to);
    }
  }
  return linear;
}

bool PackedLinear::has_packed() const {
  return std::any_of(segments_.begin(), segments_.end(),
                     [](const LinearSegment& s) { return is_quant(s.format); });
}

size_t PackedLinear::bytes() const {
  size_t sum = bias_.bytes();
  for (const LinearSegment& segment : segments_) sum += segment.panels.bytes();
  return sum;
}

}  // namespace zipage::cpu
