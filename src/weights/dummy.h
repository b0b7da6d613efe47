// DummySource: pseudo-random weights without a file, for benchmarks and tests of models whose
// weights are not at hand (`--load-format dummy`).
//
// Threads: immutable once made; any thread may read it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "weights/weight_source.h"

namespace zipage {

struct DummyTensor {
  std::string name;
  Shape shape;
  // All 1 (a norm's weight); otherwise pseudo-random.
  bool ones;
};

// Pseudo-random values are uniform in +-0.04 and the same on every machine. They repeat: one buffer
// of about 16 MiB is mapped over and over, so that 16 GB of weights take that much memory. The
// period is a prime number of pages, so that the rows of a matrix do not repeat every few rows.
class DummySource : public WeightSource {
 public:
  // `dtype`: f32, f16 or bf16, of all tensors.
  DummySource(const std::string& path, const std::vector<DummyTensor>& tensors, DType dtype);
  WeightNaming naming() const override { return WeightNaming::kHuggingFace; }
  void release(const HostTensor&) const override {}

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* mapping) const;
  };
  // At least `bytes` readable bytes of the repeating buffer.
  void map_random(size_t bytes, DType dtype);

  std::unique_ptr<std::byte, Unmap> mapping_;
  size_t page_bytes_;
  std::unique_ptr<std::byte[]> ones_;
};

}  // namespace zipage
