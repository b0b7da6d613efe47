// GgufSource: the tensors of a GGUF file as a WeightSource. Packed types stay packed;
// tensor/dequantize.h says what they mean.
//
// Threads: immutable once made; any thread may read it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/gguf_file.h"
#include "weights/weight_source.h"

namespace zipage {

struct GgmlType {
  // "Q4_K"
  std::string_view name;
  // none: known to the format, not to Zipage.
  std::optional<DType> dtype;
};
// Nothing for a number that is no type, or is one no longer.
std::optional<GgmlType> ggml_type(uint32_t number);

class GgufSource : public WeightSource {
 public:
  // A file, or the first of the parts that a large model is split into ("...-00001-of-00003.gguf"),
  // which opens the others. Throws as GgufFile::open does, and kDataLoss for tensors that are
  // unknown, overlap, end past the file, or whose rows are no whole number of packed blocks.
  static std::unique_ptr<GgufSource> open(const std::string& path);
  explicit GgufSource(std::vector<GgufFile> files);

  WeightNaming naming() const override { return WeightNaming::kGguf; }
  void fetch(const HostTensor& tensor) const override;
  void release(const HostTensor& tensor) const override;
  // With the metadata of the model.
  const GgufFile& file() const { return files_.front(); }

 private:
  void add_tensors(const GgufFile& part);

  std::vector<GgufFile> files_;
};

}  // namespace zipage
