#include "model/open_model.h"

#include "base/error.h"
#include "base/mmap.h"
#include "model/dummy_weights.h"
#include "model/gguf_config.h"
#include "weights/gguf.h"

namespace zipage {

OpenedModel open_model(const std::string& path, std::string_view load_format) {
  OpenedModel model;
  if (load_format != "dummy") model.weights = open_weights(path, load_format);
  if (const auto* gguf = dynamic_cast<const GgufSource*>(model.weights.get())) {
    model.config = parse_gguf_config(*gguf);
    model.generation = parse_gguf_generation_config(gguf->file());
    return model;
  }
  if (!is_directory(path)) {
    fail(StatusCode::kNotFound, "'{}' is not a folder with a config.json", path);
  }
  model.config = read_model_config(path);
  model.generation = read_generation_config(path);
  if (load_format == "dummy") model.weights = make_dummy_weights(path, model.config);
  return model;
}

}  // namespace zipage
