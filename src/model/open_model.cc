#include "model/open_model.h"

#include "base/error.h"

namespace zipage {

OpenedModel open_model(const std::string& path, std::string_view load_format) {
  OpenedModel model;
  model.weights = open_weights(path, load_format);
  model.config = read_model_config(path);
  model.generation = read_generation_config(path);
  return model;
}

}  // namespace zipage
