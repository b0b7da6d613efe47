#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_linear.h"
#include "base/check.h"
#include "base/error.h"
#include "tensor/dequantize.h"

namespace zipage {

namespace {

// Elements [begin, begin + values.size()) of `tensor`, whole blocks of a packed type.
void read_elements(const HostTensor& tensor, int64_t begin, std::span<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  if (is_packed(tensor.dtype)) {
    const std::byte* data = tensor.data + dtype_bytes(tensor.dtype, begin);
    dequantize({tensor.name, tensor.dtype, {count}, data}, values);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = element_as_f32(tensor, begin + i);
  }
}

// Copies a host tensor to the device in `dtype` (kF32 or kBF16), a few megabytes at a time where it
// must be converted.
void upload(const HostTensor& tensor, DType dtype, std::byte* to) {
  const int64_t count = num_elements(tensor.shape);
  if (tensor.dtype == dtype) {
    ZIPAGE_CUDA_CHECK(
        cudaMemcpy(to, tensor.data, static_cast<size_t>(tensor.bytes()), cudaMemcpyHostToDevice));
    return;
  }
  constexpr int64_t kChunk = int64_t{1} << 22;
  std::vector<float> values;
  std::vector<uint16_t> rounded;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    values.resize(static_cast<size_t>(std::min(kChunk, count - begin)));
    read_elements(tensor, begin, values);
    const void* chunk = values.data();
    if (dtype == DType::kBF16) {
      rounded.resize(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), f32_to_bf16);
      chunk = rounded.data();
    }
    ZIPAGE_CUDA_CHECK(
        cudaMemcpy(to + dtype_bytes(dtype, begin), chunk,
                   static_cast<size_t>(dtype_bytes(dtype, static_cast<int64_t>(values.size()))),
                   cudaMemcpyHostToDevice));
  }
}

}  // namespace

CudaLinearWeight::CudaLinearWeight(int device,
                                   DType dtype,
                                   int64_t out_features,
                                   int64_t in_features)
    : device_(device), dtype_(dtype), out_features_(out_features), in_features_(in_features) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(device_));
  ZIPAGE_CUDA_CHECK(cudaMalloc(&data_, bytes()));
}

CudaLinearWeight::~CudaLinearWeight() {
  cudaFree(data_);
  cudaFree(bias_);
  cudaFree(bias_bf16_);
}

size_t CudaLinearWeight::bytes() const {
  return static_cast<size_t>(dtype_bytes(dtype_, out_features_ * in_features_));
}

void CudaLinearWeight::upload_rows(const HostTensor& part, int64_t row) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(device_));
  upload(part, dtype_, static_cast<std::byte*>(data_) + dtype_bytes(dtype_, row * in_features_));
}

void CudaLinearWeight::upload_bias(const HostTensor& part, int64_t row) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(device_));
  if (bias_ == nullptr) {
    const size_t size = static_cast<size_t>(out_features_) * sizeof(float);
    ZIPAGE_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&bias_), size));
    ZIPAGE_CUDA_CHECK(cudaMemset(bias_, 0, size));
    ZIPAGE_CUDA_CHECK(cudaMalloc(&bias_bf16_, size / 2));
    ZIPAGE_CUDA_CHECK(cudaMemset(bias_bf16_, 0, size / 2));
  }
  upload(part, DType::kF32, reinterpret_cast<std::byte*>(bias_ + row));
  upload(part, DType::kBF16, static_cast<std::byte*>(bias_bf16_) + 2 * row);
}

std::unique_ptr<LinearWeight> CudaLinear::make_weight(std::span<const HostTensor> parts,
                                                      std::span<const HostTensor> bias) {
  ZIPAGE_CHECK(!parts.empty());
  ZIPAGE_CHECK(bias.empty() || bias.size() == parts.size());
  int64_t out_features = 0;
  const int64_t in_features = parts[0].shape.size() == 2 ? parts[0].shape[1] : 0;
  for (const HostTensor& part : parts) {
    if (part.shape.size() != 2 || part.shape[1] != in_features) {
      fail_invalid("tensor {}: shape {}, expected [any, {}]", part.name, to_string(part.shape),
                   in_features);
    }
    out_features += part.shape[0];
  }
  auto weight =
      std::make_unique<CudaLinearWeight>(context_.device, dtype_, out_features, in_features);
  int64_t row = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    weight->upload_rows(parts[i], row);
    if (!bias.empty() && bias[i].data != nullptr) {
      if (num_elements(bias[i].shape) != parts[i].shape[0]) {
        fail_invalid("tensor {}: shape {}, expected [{}]", bias[i].name, to_string(bias[i].shape),
                     parts[i].shape[0]);
      }
      weight->upload_bias(bias[i], row);
    }
    row += parts[i].shape[0];
  }
  return weight;
}

}  // namespace zipage
