// load_format dummy: the tensors that a config asks for, without a file.
#pragma once

#include <memory>
#include <string>

#include "model/config.h"
#include "weights/weight_source.h"

namespace zipage {

// `path` is for messages. The element type is the config's dtype.
std::unique_ptr<WeightSource> make_dummy_weights(const std::string& path,
                                                 const ModelConfig& config);

}  // namespace zipage
