// What a kernel launcher may know of the device. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace zipage {

struct CudaContext {
  int32_t device = 0;
  int32_t num_sms = 0;
  int32_t compute_capability = 0;  // 80, 90, ...
  size_t l2_bytes = 0;
  size_t max_shared_bytes = 0;        // a block, opt-in
  void* encode_tensor_map = nullptr;  // the driver's cuTensorMapEncodeTiled; null before Hopper
  bool early_start() const {
    return compute_capability >= 90;
  }  // kernels may start before the last one ends
  bool is_hopper() const { return compute_capability == 90; }  // sm_90a code may run
};

}  // namespace zipage
