// A model as a user names it: a folder from the Hugging Face hub, or a GGUF file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/generation_config.h"
#include "weights/weight_source.h"

namespace zipage {

struct OpenedModel {
  ModelConfig config;
  GenerationConfig generation;
  std::unique_ptr<WeightSource> weights;
  // What the user should know although the model can run; one sentence each.
  std::vector<std::string> warnings;
};

// `load_format`: auto | safetensors | gguf | dummy. dummy needs config.json alone.
OpenedModel open_model(const std::string& path, std::string_view load_format = "auto");

}  // namespace zipage
