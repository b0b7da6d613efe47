// linear() of the CUDA backend: weights on the device and the choice among cuBLASLt and the own kernels, by timing.
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
#include "backend/cuda/kernels/gemm/gemm.h"

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
  const float* bias() const { return bias_; }           // [out_features] or null
  const void* bias_bf16() const { return bias_bf16_; }  // the same, rounded
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
  void* bias_bf16_ = nullptr;
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
  // The same through one of the own kernels for few tokens; false where it cannot. run() takes
  // whichever was fastest when a shape and number of tokens first came outside a capture.
  bool run_stream(const LinearArgs& args, CudaStream& stream);
  bool run_gemv(const LinearArgs& args, CudaStream& stream);

 private:
  // out, in, tokens rounded up to a bucket, f32 output, bias, workspace there
  using PlanKey = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool>;
  struct Matmul;  // descriptors of one call
  enum class Kernel { kCublas, kStream, kGemv };
  struct Plan {
    Kernel kernel = Kernel::kCublas;
    cublasLtMatmulAlgo_t algorithm{};  // of cuBLASLt
  };
  GemmStreamArgs own_args(const LinearArgs& args, const CudaStream& stream) const;
  bool takes(Kernel kernel, const LinearArgs& args, const CudaStream& stream) const;
  PlanKey key_of(const LinearArgs& args, const CudaStream& stream) const;
  std::vector<cublasLtMatmulAlgo_t> propose(const Matmul& matmul, const CudaStream& stream) const;
  Plan choose(const LinearArgs& args, bool may_be_own, CudaStream& stream);
  const Plan& plan_of(const LinearArgs& args, bool may_be_own, CudaStream& stream);

  CudaContext context_;
  DType dtype_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;                      // guards plans
  std::map<PlanKey, Plan> plans_;         // of run()
  std::map<PlanKey, Plan> cublas_plans_;  // of run_cublas()
};

}  // namespace zipage
