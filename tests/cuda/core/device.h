// What the tests of CUDA ops share: one backend a test, arrays that live on both sides, random
// numbers.
#pragma once

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "tensor/dtype.h"

namespace zipage::test {

inline std::vector<std::byte> encode(const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(dtype_bytes(dtype, static_cast<int64_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

inline std::vector<double> decode(const std::vector<std::byte>& bytes, DType dtype) {
  const size_t element = static_cast<size_t>(packed_block_bytes(dtype));
  std::vector<double> values(bytes.size() / element);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      values[i] = value;
    } else {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
  }
  return values;
}

// The values `dtype` can hold nearest to these.
inline std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
  return decode(encode(values, dtype), dtype);
}

// Half a unit in the last place of a value, over the value: at most this.
inline double half_ulp(DType dtype) {
  return std::ldexp(1.0, dtype == DType::kF32 ? -24 : dtype == DType::kBF16 ? -8 : -11);
}

class Device {
 public:
  explicit Device(DType dtype) {
    BackendOptions options;
    options.dtype = dtype;
    backend = std::make_unique<CudaBackend>(options);
    stream = backend->create_stream(false);
  }
  std::unique_ptr<CudaBackend> backend;
  std::unique_ptr<Stream> stream;

  Buffer upload(const void* data, size_t bytes) {
    Buffer buffer = backend->allocate(bytes == 0 ? 16 : bytes, MemorySpace::kDevice);
    backend->copy(buffer.data(), data, bytes, *stream);
    backend->synchronize(*stream);
    return buffer;
  }
  template <typename T>
  Buffer upload(const std::vector<T>& values) {
    return upload(values.data(), values.size() * sizeof(T));
  }
  Buffer upload(const std::vector<double>& values, DType dtype) {
    return upload(encode(values, dtype));
  }
  // Memory full of NaN, whatever the type.
  Buffer poisoned(size_t bytes) { return upload(std::vector<uint8_t>(bytes, 0xff)); }
  std::vector<std::byte> download(const void* data, size_t bytes) {
    std::vector<std::byte> host(bytes);
    backend->copy(host.data(), data, bytes, *stream);
    backend->synchronize(*stream);
    return host;
  }
  std::vector<double> download(const Buffer& buffer, DType dtype, size_t count) {
    return decode(download(buffer.data(),
                           static_cast<size_t>(dtype_bytes(dtype, static_cast<int64_t>(count)))),
                  dtype);
  }
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  std::vector<double> normal(size_t count, double scale = 1) {
    std::normal_distribution<double> draw(0, scale);
    std::vector<double> values(count);
    for (double& value : values) value = draw(engine_);
    return values;
  }
  int32_t below(int32_t limit) {
    return std::uniform_int_distribution<int32_t>(0, limit - 1)(engine_);
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

// Every element is finite and within `relative` of the reference, of its size or of `floor`, and
// that of its `more` (empty: 0) beyond.
inline void expect_near(const std::vector<double>& got,
                        const std::vector<double>& want,
                        double relative,
                        double floor,
                        const std::string& what,
                        const std::vector<double>& more = {}) {
  ASSERT_EQ(got.size(), want.size()) << what;
  size_t bad = 0;
  size_t worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double tolerance =
        relative * std::max(std::abs(want[i]), floor) + (more.empty() ? 0 : more[i]);
    const double excess = std::abs(got[i] - want[i]) / tolerance;
    if (!(excess <= 1)) ++bad;
    if (!(excess <= worst_excess)) {
      worst = i;
      worst_excess = excess;
    }
  }
  EXPECT_EQ(bad, 0u) << what << ": of " << got.size() << "; worst at " << worst << ": got "
                     << got[worst] << ", want " << want[worst];
}

}  // namespace zipage::test
