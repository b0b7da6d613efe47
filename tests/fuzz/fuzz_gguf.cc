// Any bytes are a GGUF file, maybe of a model, or one Error.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "model/gguf_config.h"
#include "model/weights.h"
#include "tensor/dequantize.h"

namespace {

void read_everything(std::span<const std::byte> bytes) {
  std::vector<zipage::GgufFile> files;
  files.push_back(zipage::GgufFile::parse(bytes, "x"));
  const zipage::GgufSource source(std::move(files));
  for (const std::string& name : source.names()) {
    try {
      const zipage::HostTensor* tensor = source.find(name);
      ZIPAGE_CHECK(tensor != nullptr);
      const int64_t count = zipage::num_elements(tensor->shape);
      if (count > 1 << 16) continue;
      std::vector<float> values(static_cast<size_t>(count));
      zipage::dequantize(*tensor, values);
    } catch (const zipage::Error&) {
    }
  }
  zipage::parse_gguf_generation_config(source.file());
  const zipage::ModelConfig config = zipage::parse_gguf_config(source);
  zipage::rope_table(config, std::min<int64_t>(config.max_position_embeddings, 4));
  zipage::load_model_weights(source, config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    read_everything(std::as_bytes(std::span(data, size)));
  } catch (const zipage::Error&) {
  }
  return 0;
}
