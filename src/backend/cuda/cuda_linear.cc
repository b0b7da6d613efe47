#include "backend/cuda/cuda_linear.h"

#include <algorithm>
#include <array>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/kernels/elementwise/silu_mul.h"
#include "backend/cuda/kernels/gemm/gemm.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage {

namespace {

void check_cublas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(StatusCode::kInternal, "{}:{}: {}: {}", file, line, call, cublasLtGetStatusString(status));
}
#define ZIPAGE_CUBLAS_CHECK(call) check_cublas((call), #call, __FILE__, __LINE__)

// What an own kernel saves in a step, where the kernel ahead of it lets it start early; and what
// kGemv saves besides: it fetches the next GEMM's weights while it ends, so that a GEMM of
// another kind costs its own time and that of the kernel behind it.
constexpr float kEarlyStartMs = 1.5e-3f;
constexpr float kFetchNextMs = 3e-3f;

// Candidates are timed a few times each, the best of them again.
constexpr int kFirstRepeats = 3;
constexpr int kFinalists = 4;
constexpr int kFinalRepeats = 9;

// Numbers of tokens that share a plan. cuBLASLt has tiles that just fit a number of tokens and are
// no good for one token more: a plan for each size of a captured batch.
int64_t token_bucket(int64_t tokens) {
  if (tokens <= 4) return tokens <= 2 ? tokens : 4;
  const int64_t step = tokens <= 256 ? 8 : tokens <= 512 ? 64 : tokens <= 2048 ? 256 : 1024;
  return (tokens + step - 1) / step * step;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ZIPAGE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

class ScopedEvent {
 public:
  ScopedEvent() { ZIPAGE_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~ScopedEvent() { cudaEventDestroy(event_); }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

// cuBLASLt is column-major: out^T [out, T] = W^T' [out, in] x^T [in, T].
struct CudaLinear::Matmul {
  const LinearArgs& args;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t w, x, out;

  explicit Matmul(const LinearArgs& linear_args) : args(linear_args) {
    ZIPAGE_CUBLAS_CHECK(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T;
    ZIPAGE_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transpose, sizeof transpose));
    const auto& own = static_cast<const CudaLinearWeight&>(*args.weight);
    if (own.bias() != nullptr) {
      // Added before the sum is rounded; its type is that of the output. Seen otherwise (cuBLASLt
      // 13.0, H200): where rows of a bf16 output are no multiple of 16 bytes, the sum is rounded to
      // bf16, then the bias added and rounded again. The own kernels round once.
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const void* bias = args.out_dtype == DType::kF32 ? own.bias() : own.bias_bf16();
      ZIPAGE_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                         &epilogue, sizeof epilogue));
      ZIPAGE_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(
          &operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
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

CudaLinear::PlanKey CudaLinear::key_of(const LinearArgs& args, const CudaStream& stream) const {
  return {args.weight->out_features(),
          args.weight->in_features(),
          token_bucket(args.num_tokens),
          args.out_dtype == DType::kF32,
          static_cast<const CudaLinearWeight&>(*args.weight).bias() != nullptr,
          stream.workspace_bytes() > 0};
}

// What cuBLASLt's heuristic names, best first; at least one.
std::vector<cublasLtMatmulAlgo_t> CudaLinear::propose(const Matmul& matmul,
                                                      const CudaStream& stream) const {
  constexpr int kProposals = 16;
  cublasLtMatmulPreferenceOpaque_t preference;
  ZIPAGE_CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const size_t workspace_bytes = std::min(stream.workspace_bytes(), kCublasBytes);
  ZIPAGE_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace_bytes, sizeof workspace_bytes));
  // Parts of a sum that meet in bf16 would be rounded once more each.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  ZIPAGE_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
      &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposals{};
  int found = 0;
  Matmul local = matmul;
  ZIPAGE_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, &local.operation, &local.w, &local.x,
                                                     &local.out, &local.out, &preference,
                                                     kProposals, proposals.data(), &found));
  if (found == 0) {
    fail(StatusCode::kUnimplemented, "cuBLASLt has no algorithm for [{}, {}] x {} tokens",
         matmul.args.weight->out_features(), matmul.args.weight->in_features(),
         matmul.args.num_tokens);
  }
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) algorithms.push_back(proposals[static_cast<size_t>(i)].algo);
  return algorithms;
}

// The fastest candidate, timed on the call's own operands. While a graph is being captured nothing
// can be timed: then an own kernel for very few tokens, cuBLASLt's first proposal for more.
CudaLinear::Plan CudaLinear::choose(const LinearArgs& args, bool may_be_own, CudaStream& stream) {
  Matmul matmul(args);
  std::vector<Plan> candidates;
  if (may_be_own) {
    for (const Kernel kernel : {Kernel::kGemv, Kernel::kStream}) {
      if (takes(kernel, args, stream)) candidates.push_back({kernel, {}});
    }
  }
  const bool blind = is_capturing(stream.handle()) || stream.workspace_bytes() == 0;
  if (blind && !candidates.empty() && args.num_tokens <= 8) return candidates[0];
  for (const cublasLtMatmulAlgo_t& algorithm : propose(matmul, stream))
    candidates.push_back({Kernel::kCublas, algorithm});
  if (blind) {
    return *std::find_if(candidates.begin(), candidates.end(),
                         [](const Plan& plan) { return plan.kernel == Kernel::kCublas; });
  }
  if (candidates.size() == 1) return candidates[0];

  const ScopedEvent begin;
  const ScopedEvent end;
  // The least of some repeats after a first one; 0 where the candidate does not run.
  const auto time_ms = [&](const Plan& plan, int repeats) {
    float least = 0;
    for (int repeat = 0; repeat <= repeats; ++repeat) {
      // Weights come from memory in a model's step: reading the workspace drives them out of the
      // L2.
      launch_read_through(stream.workspace(), stream.workspace_bytes(), stream.handle());
      ZIPAGE_CUDA_CHECK(cudaEventRecord(begin.get(), stream.handle()));
      if (plan.kernel == Kernel::kGemv) {
        run_gemv(args, stream);
      } else if (plan.kernel == Kernel::kStream) {
        run_stream(args, stream);
      } else if (matmul.run(handle_, plan.algorithm, stream) != CUBLAS_STATUS_SUCCESS) {
        return 0.0f;
      }
      ZIPAGE_CUDA_CHECK(cudaEventRecord(end.get(), stream.handle()));
      ZIPAGE_CUDA_CHECK(cudaEventSynchronize(end.get()));
      float ms = 0;
      ZIPAGE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin.get(), end.get()));
      if (repeat == 1 || (repeat > 1 && ms < least)) least = ms;
    }
    // A GEMM timed alone does not show what it saves in a step.
    const float saved = plan.kernel == Kernel::kCublas   ? 0.0f
                        : plan.kernel == Kernel::kStream ? kEarlyStartMs
                                                         : kEarlyStartMs + kFetchNextMs;
    return std::max(least - saved, least / 2);
  };
  std::vector<std::pair<float, size_t>> order;  // time, candidate
  for (size_t i = 0; i < candidates.size(); ++i) {
    const float ms = time_ms(candidates[i], kFirstRepeats);
    if (ms > 0) order.emplace_back(ms, i);
  }
  if (order.empty()) return candidates[0];
  std::sort(order.begin(), order.end());
  order.resize(std::min<size_t>(order.size(), kFinalists));
  for (auto& [ms, i] : order) ms = std::min(ms, time_ms(candidates[i], kFinalRepeats));
  return candidates[std::min_element(order.begin(), order.end())->second];
}

const CudaLinear::Plan& CudaLinear::plan_of(const LinearArgs& args,
                                            bool may_be_own,
                                            CudaStream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& plans = may_be_own ? plans_ : cublas_plans_;
  const PlanKey key = key_of(args, stream);
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  return plans.emplace(key, choose(args, may_be_own, stream)).first->second;
}

void CudaLinear::run_cublas(const LinearArgs& args, CudaStream& stream) {
  Matmul matmul(args);
  ZIPAGE_CUBLAS_CHECK(matmul.run(handle_, plan_of(args, false, stream).algorithm, stream));
}

GemmStreamArgs CudaLinear::own_args(const LinearArgs& args, const CudaStream& stream) const {
  const auto& weight = static_cast<const CudaLinearWeight&>(*args.weight);
  const auto* next = static_cast<const CudaLinearWeight*>(args.next);
  const bool has_workspace = stream.workspace_bytes() >= kWorkspaceBytes;
  return {weight.data(),
          args.x,
          weight.bias(),
          args.out,
          args.out_dtype,
          args.num_tokens,
          weight.out_features(),
          weight.in_features(),
          has_workspace ? static_cast<std::byte*>(stream.workspace()) + kCublasBytes : nullptr,
          has_workspace ? kWorkspaceBytes - kCublasBytes : 0,
          0,
          context_.early_start(),
          next == nullptr ? nullptr : next->data(),
          next == nullptr ? 0 : static_cast<int64_t>(next->bytes())};
}

bool CudaLinear::takes(Kernel kernel, const LinearArgs& args, const CudaStream& stream) const {
  const GemmStreamArgs own = own_args(args, stream);
  return kernel == Kernel::kGemv ? gemv_takes(own, context_) : gemm_stream_takes(own, context_);
}

bool CudaLinear::run_stream(const LinearArgs& args, CudaStream& stream) {
  if (!takes(Kernel::kStream, args, stream)) return false;
  launch_gemm_stream(own_args(args, stream), context_, stream.handle());
  return true;
}

bool CudaLinear::run_gemv(const LinearArgs& args, CudaStream& stream) {
  if (!takes(Kernel::kGemv, args, stream)) return false;
  launch_gemv(own_args(args, stream), context_, stream.handle());
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
  const Plan& plan = plan_of(args, true, stream);
  switch (plan.kernel) {
    case Kernel::kGemv:
      ZIPAGE_CHECK(run_gemv(args, stream));
      return;
    case Kernel::kStream:
      ZIPAGE_CHECK(run_stream(args, stream));
      return;
    case Kernel::kCublas:
      break;
  }
  Matmul matmul(args);
  ZIPAGE_CUBLAS_CHECK(matmul.run(handle_, plan.algorithm, stream));
}

}  // namespace zipage
