#include "backend/cuda/cuda_linear.h"

#include <algorithm>
#include <array>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/kernels/gemm.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage {

namespace {

void check_cublas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(StatusCode::kInternal, "{}:{}: {}: {}", file, line, call, cublasLtGetStatusString(status));
}
#define ZIPAGE_CUBLAS_CHECK(call) check_cublas((call), #call, __FILE__, __LINE__)

// Numbers of tokens that share an algorithm.
int64_t token_bucket(int64_t tokens) {
  const int64_t step = tokens <= 16 ? 16 : tokens <= 512 ? 64 : tokens <= 2048 ? 256 : 1024;
  return (tokens + step - 1) / step * step;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ZIPAGE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

// cuBLASLt is column-major: out^T [out, T] = W^T' [out, in] x^T [in, T].
struct CudaLinear::Product {
  const LinearArgs& args;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t w, x, out;

  explicit Product(const LinearArgs& linear_args) : args(linear_args) {
    ZIPAGE_CUBLAS_CHECK(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T;
    ZIPAGE_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transpose, sizeof transpose));
    const auto rows = static_cast<uint64_t>(args.weight->out_features());
    const auto depth = static_cast<uint64_t>(args.weight->in_features());
    const auto tokens = static_cast<uint64_t>(args.num_tokens);
    const cudaDataType_t out_type = args.out_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
    ZIPAGE_CUBLAS_CHECK(
        cublasLtMatrixLayoutInit(&w, CUDA_R_16BF, depth, rows, static_cast<int64_t>(depth)));
    ZIPAGE_CUBLAS_CHECK(
        cublasLtMatrixLayoutInit(&x, CUDA_R_16BF, depth, tokens, static_cast<int64_t>(depth)));
    ZIPAGE_CUBLAS_CHECK(
        cublasLtMatrixLayoutInit(&out, out_type, rows, tokens, static_cast<int64_t>(rows)));
  }

  cublasStatus_t run(cublasLtHandle_t handle,
                     const cublasLtMatmulAlgo_t& algorithm,
                     CudaStream& stream) {
    const float one = 1;
    const float zero = 0;
    const auto& weight = static_cast<const CudaLinearWeight&>(*args.weight);
    return cublasLtMatmul(handle, &operation, &one, weight.data(), &w, args.x, &x, &zero, args.out,
                          &out, args.out, &out, &algorithm, stream.workspace(),
                          std::min(stream.workspace_bytes(), kCublasBytes), stream.handle());
  }
};

CudaLinear::CudaLinear(const CudaContext& context, DType dtype) : context_(context), dtype_(dtype) {
  ZIPAGE_CUBLAS_CHECK(cublasLtCreate(&handle_));
}

CudaLinear::~CudaLinear() { cublasLtDestroy(handle_); }

// The fastest of the heuristic's proposals, timed on the call's own operands; while a graph is
// being captured nothing can be timed and the first proposal is taken.
cublasLtMatmulAlgo_t CudaLinear::choose(const Product& product, CudaStream& stream) {
  constexpr int kProposals = 8;
  cublasLtMatmulPreferenceOpaque_t preference;
  ZIPAGE_CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const size_t workspace_bytes = std::min(stream.workspace_bytes(), kCublasBytes);
  ZIPAGE_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace_bytes, sizeof workspace_bytes));
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposals{};
  int found = 0;
  Product local = product;
  ZIPAGE_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, &local.operation, &local.w, &local.x,
                                                     &local.out, &local.out, &preference,
                                                     kProposals, proposals.data(), &found));
  if (found == 0) {
    fail(StatusCode::kUnimplemented, "cuBLASLt has no algorithm for [{}, {}] x {} tokens",
         product.args.weight->out_features(), product.args.weight->in_features(),
         product.args.num_tokens);
  }
  if (found == 1 || is_capturing(stream.handle())) return proposals[0].algo;

  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ZIPAGE_CUDA_CHECK(cudaEventCreate(&begin));
  ZIPAGE_CUDA_CHECK(cudaEventCreate(&end));
  int best = 0;
  float best_ms = 0;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulAlgo_t& algorithm = proposals[static_cast<size_t>(i)].algo;
    float least_ms = 0;
    for (int repeat = 0; repeat < 4; ++repeat) {
      ZIPAGE_CUDA_CHECK(cudaEventRecord(begin, stream.handle()));
      if (local.run(handle_, algorithm, stream) != CUBLAS_STATUS_SUCCESS) break;
      ZIPAGE_CUDA_CHECK(cudaEventRecord(end, stream.handle()));
      ZIPAGE_CUDA_CHECK(cudaEventSynchronize(end));
      float ms = 0;
      ZIPAGE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (repeat == 1 || (repeat > 1 && ms < least_ms)) least_ms = ms;
    }
    if (least_ms > 0 && (best_ms == 0 || least_ms < best_ms)) {
      best = i;
      best_ms = least_ms;
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return proposals[static_cast<size_t>(best)].algo;
}

void CudaLinear::run_cublas(const LinearArgs& args, CudaStream& stream) {
  Product product(args);
  const PlanKey key(args.weight->out_features(), args.weight->in_features(),
                    token_bucket(args.num_tokens), args.out_dtype == DType::kF32,
                    stream.workspace_bytes() > 0);
  cublasLtMatmulAlgo_t algorithm;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, choose(product, stream)).first;
    algorithm = found->second;
  }
  ZIPAGE_CUBLAS_CHECK(product.run(handle_, algorithm, stream));
}

bool CudaLinear::run_stream(const LinearArgs& args, int32_t cluster, CudaStream& stream) {
  if (stream.workspace_bytes() < kWorkspaceBytes || args.num_tokens > kMaxStreamTokens)
    return false;
  const auto& weight = static_cast<const CudaLinearWeight&>(*args.weight);
  const GemmStreamArgs stream_args{weight.data(),
                                   args.x,
                                   weight.bias(),
                                   args.out,
                                   args.out_dtype,
                                   args.num_tokens,
                                   weight.out_features(),
                                   weight.in_features(),
                                   static_cast<std::byte*>(stream.workspace()) + kCublasBytes,
                                   kWorkspaceBytes - kCublasBytes,
                                   cluster,
                                   true};
  if (!gemm_stream_takes(stream_args, context_)) return false;
  launch_gemm_stream(stream_args, context_, stream.handle());
  return true;
}

void CudaLinear::run(const LinearArgs& args, CudaStream& stream) {
  const auto& weight = static_cast<const CudaLinearWeight&>(*args.weight);
  ZIPAGE_CHECK_EQ(static_cast<int>(args.dtype), static_cast<int>(dtype_));
  ZIPAGE_CHECK(args.out_dtype == dtype_ || args.out_dtype == DType::kF32);
  if (dtype_ == DType::kF32) {
    launch_gemm_f32({static_cast<const float*>(weight.data()), static_cast<const float*>(args.x),
                     weight.bias(), static_cast<float*>(args.out), args.num_tokens,
                     weight.out_features(), weight.in_features()},
                    context_, stream.handle());
    return;
  }
  if (run_stream(args, args.num_tokens > 64 ? 2 : 1, stream)) return;
  run_cublas(args, stream);
  if (weight.bias() != nullptr) {
    launch_add_bias(
        {args.out_dtype, weight.bias(), args.num_tokens, weight.out_features(), args.out}, context_,
        stream.handle());
  }
}

}  // namespace zipage
