// Reader of the safetensors format: 8 bytes with the length of a JSON header, the header, the data.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "weights/weight_source.h"

namespace zipage {

struct SafetensorsEntry {
  HostTensor tensor;
  std::string unsupported_type;  // "F64", "BOOL", ...: known to the format, not to Zipage
};

// Checks the whole header against the size of the file: every byte of data belongs to exactly one
// tensor. The tensors point into `file`. Throws kDataLoss; `path` is for messages.
std::vector<SafetensorsEntry> parse_safetensors(std::span<const std::byte> file,
                                                const std::string& path);

// model.safetensors, or the shards that model.safetensors.index.json lists, of one folder.
//
// The index decides in which file a tensor is looked for, and nothing else, as in transformers and
// vLLM: it may name tensors and files that are not there (an error when the model needs one), and a
// shard may hold tensors that it does not name.
class SafetensorsSource : public WeightSource {
 public:
  static std::unique_ptr<SafetensorsSource> open(const std::string& folder);
  WeightNaming naming() const override { return WeightNaming::kHuggingFace; }
  void fetch(const HostTensor& tensor) const override;
  void release(const HostTensor& tensor) const override;

 private:
  explicit SafetensorsSource(const std::string& folder) : WeightSource(folder) {}
  using Places = std::map<std::string, std::string>;  // tensor -> path of its file
  // All tensors of the file but those that have their place in another one.
  void add_file(const std::string& path, const Places& places);
  void add_shards(const std::string& folder, const std::string& index_path);

  std::vector<FileImage> files_;
};

}  // namespace zipage
