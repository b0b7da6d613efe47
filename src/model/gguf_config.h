// The config of a GGUF file, from its metadata and from the tensors it has.
#pragma once

#include "model/config.h"
#include "model/generation_config.h"
#include "weights/gguf.h"

namespace zipage {

// Throws kDataLoss for a key that is missing or out of range, kUnimplemented for another
// architecture.
ModelConfig parse_gguf_config(const GgufSource& source);
// From general.sampling.* and the ids of the tokenizer.
GenerationConfig parse_gguf_generation_config(const GgufFile& file);

}  // namespace zipage
