#include <algorithm>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_linear.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage {

namespace {

// Elements [begin, begin + count) of `tensor` in `dtype` (kF32 or kBF16).
void convert(const HostTensor& tensor, int64_t begin, int64_t count, DType dtype, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = element_as_f32(tensor, begin + i);
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(to)[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(to)[i] = f32_to_bf16(value);
    }
  }
}

// Copies a host tensor to the device in `dtype`, a few megabytes at a time where it must be
// converted.
void upload(const HostTensor& tensor, DType dtype, std::byte* to) {
  const int64_t count = num_elements(tensor.shape);
  if (tensor.dtype == dtype) {
    ZIPAGE_CUDA_CHECK(
        cudaMemcpy(to, tensor.data, static_cast<size_t>(tensor.bytes()), cudaMemcpyHostToDevice));
    return;
  }
  constexpr int64_t kChunk = int64_t{1} << 22;
  const size_t element = static_cast<size_t>(packed_block_bytes(dtype));
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(count, kChunk)) * element);
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t part = std::min(kChunk, count - begin);
    convert(tensor, begin, part, dtype, chunk.data());
    ZIPAGE_CUDA_CHECK(cudaMemcpy(to + static_cast<size_t>(begin) * element, chunk.data(),
                                 static_cast<size_t>(part) * element, cudaMemcpyHostToDevice));
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
    if (is_packed(part.dtype)) {
      fail(StatusCode::kUnimplemented,
           "tensor {}: {} weights have no CUDA kernel; the loader must hand over f32, f16 or bf16",
           part.name, to_string(part.dtype));
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
