// linear() of the CUDA backend: weights on the device and the choice of the product's kernel.
#pragma once

#include <cublasLt.h>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/cuda_stream.h"

namespace zipage {

// W [out_features, in_features], row-major in the backend's dtype: one layout serves cuBLASLt, the
// own kernels and the embedding.
class CudaLinearWeight final : public LinearWeight {
 public:
  CudaLinearWeight(int device, DType dtype, int64_t out_features, int64_t in_features);
  ~CudaLinearWeight() override;
  CudaLinearWeight(const CudaLinearWeight&) = delete;
  CudaLinearWeight& operator=(const CudaLinearWeight&) = delete;

  int64_t out_features() const override { return out_features_; }
  int64_t in_features() const override { return in_features_; }
  size_t bytes() const override;
  DType dtype() const { return dtype_; }
  void* data() const { return data_; }
  const float* bias() const { return bias_; }  // [out_features] or null
  // Fills rows [row, row + rows of the part), or the bias from `row` on. Host to device, done on
  // return.
  void upload_rows(const HostTensor& part, int64_t row);
  void upload_bias(const HostTensor& part, int64_t row);

 private:
  int device_;
  DType dtype_;
  int64_t out_features_;
  int64_t in_features_;
  void* data_ = nullptr;
  float* bias_ = nullptr;
};

class CudaLinear {
 public:
  // Of each stream that may run linear(): the first half is cuBLASLt's, the second that of the own
  // kernel.
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;
  static constexpr size_t kCublasBytes = kWorkspaceBytes / 2;

  CudaLinear(const CudaContext& context, DType dtype);
  ~CudaLinear();
  CudaLinear(const CudaLinear&) = delete;
  CudaLinear& operator=(const CudaLinear&) = delete;

  std::unique_ptr<LinearWeight> make_weight(std::span<const HostTensor> parts,
                                            std::span<const HostTensor> bias);
  void run(const LinearArgs& args, CudaStream& stream);
  // The same through cuBLASLt whatever the number of rows: what benches compare with.
  void run_cublas(const LinearArgs& args, CudaStream& stream);
  // The same through the own kernel for few tokens, `cluster` blocks sharing token tiles. False
  // where it cannot.
  bool run_stream(const LinearArgs& args, int32_t cluster, CudaStream& stream);

 private:
  // out, in, tokens rounded up to a bucket, f32 output, workspace there
  using PlanKey = std::tuple<int64_t, int64_t, int64_t, bool, bool>;
  struct Product;  // descriptors of one call
  cublasLtMatmulAlgo_t choose(const Product& product, CudaStream& stream);

  CudaContext context_;
  DType dtype_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // guards plans_
  std::map<PlanKey, cublasLtMatmulAlgo_t> plans_;
};

}  // namespace zipage
