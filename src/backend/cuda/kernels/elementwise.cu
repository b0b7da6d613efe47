#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/elementwise.h"

namespace zipage {

namespace {

constexpr int kThreads = 256;

// silu(x) = x / (1 + exp(-x)); expf of a large -x is inf, and x / inf is the 0 it should be.
__device__ inline float silu(float x) { return x / (1.0f + __expf(-x)); }

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    silu_mul_kernel(const T* __restrict__ gate_up, int32_t intermediate, T* __restrict__ out) {
  using Vector = Pack<T, N>;
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * N;
  if (column >= intermediate) return;
  const int64_t row = blockIdx.x;
  const T* gate_row = gate_up + row * 2 * intermediate;
  const Vector gate = *reinterpret_cast<const Vector*>(gate_row + column);
  const Vector up = *reinterpret_cast<const Vector*>(gate_row + intermediate + column);
  Vector result;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    result.value[j] = from_float<T>(silu(to_float(gate.value[j])) * to_float(up.value[j]));
  }
  *reinterpret_cast<Vector*>(out + row * intermediate + column) = result;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(const float* __restrict__ bias, int64_t features, T* __restrict__ out) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= features) return;
  T* place = out + static_cast<int64_t>(blockIdx.x) * features + column;
  *place = from_float<T>(to_float(*place) + bias[column]);
}

template <typename T, int N>
void launch_silu(const SiluMulArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.num_tokens),
                  ceil_div(args.intermediate, kThreads * N));
  silu_mul_kernel<T, N><<<grid, kThreads, 0, stream>>>(
      static_cast<const T*>(args.gate_up), args.intermediate, static_cast<T*>(args.out));
}

}  // namespace

void launch_silu_mul(const SiluMulArgs& args, const CudaContext&, cudaStream_t stream) {
  if (args.num_tokens == 0) return;
  dispatch_activation(args.dtype, "silu_mul", [&]<typename T>(T) {
    if (args.intermediate % kVector<T> == 0) {
      launch_silu<T, kVector<T>>(args, stream);
    } else {
      launch_silu<T, 1>(args, stream);
    }
  });
  ZIPAGE_CUDA_CHECK_LAUNCH("silu_mul");
}

void launch_add_bias(const AddBiasArgs& args, const CudaContext&, cudaStream_t stream) {
  if (args.num_tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(args.num_tokens), ceil_div(args.features, kThreads));
  dispatch_activation(args.dtype, "add_bias", [&]<typename T>(T) {
    add_bias_kernel<<<grid, kThreads, 0, stream>>>(args.bias, args.features,
                                                   static_cast<T*>(args.out));
  });
  ZIPAGE_CUDA_CHECK_LAUNCH("add_bias");
}

}  // namespace zipage
