// Weights of the linear op and of the embedding in the CPU's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/linear/panel_format.h"
#include "backend/cpu/runtime/context.h"
#include "tensor/tensor.h"

namespace zipage::cpu {

// Inputs that were rounded to bf16 are padded to whole tiles.
inline constexpr int64_t kInputPadding = 32;
inline constexpr int64_t kRowPadding = 16;
inline constexpr int64_t kRoundedRows = 256;  // at a time: bounds the scratch

// A run of outputs that are stored alike.
struct LinearSegment {
  PanelFormat format = PanelFormat::kBF16;
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  int64_t panel_bytes = 0;
  Buffer panels;  // [ceil(num_outputs / 16)] panels

  int64_t num_panels() const { return (num_outputs + kPanelOutputs - 1) / kPanelOutputs; }
};

class PackedLinear final : public LinearWeight {
 public:
  int64_t out_features() const override { return out_features_; }
  int64_t in_features() const override { return in_features_; }
  size_t bytes() const override;

  const std::vector<LinearSegment>& segments() const { return segments_; }
  bool has_packed() const;                                 // a segment of packed weights
  const float* bias() const { return bias_.as<float>(); }  // [out_features + 15] or null

 private:
  friend std::unique_ptr<PackedLinear> pack_linear(std::span<const HostTensor> parts,
                                                   std::span<const HostTensor> bias,
                                                   const CpuContext& context);
  int64_t out_features_ = 0;
  int64_t in_features_ = 0;
  std::vector<LinearSegment> segments_;
  Buffer bias_;
};

// The parts [out_i, in], stacked. `bias`: none, or one [out_i] a part. Throws Error naming the
// tensor.
std::unique_ptr<PackedLinear> pack_linear(std::span<const HostTensor> parts,
                                          std::span<const HostTensor> bias,
                                          const CpuContext& context);

}  // namespace zipage::cpu
