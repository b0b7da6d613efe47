// What an engine refuses before it loads anything, with an error that names the flag or the field of
// the model.
//
//   check_options(options);
//   check_heads(config, backend, compression.capped(), options.model);
//   check_memory({{"weights", 1 << 30}, {"KV cache", 2 << 30}}, free_bytes, "free on this GPU");
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "zipage/options.h"

#include "backend/backend.h"
#include "model/config.h"

namespace zipage {

// Ranges of single options, and of their products where a kernel's numbers have 32 bits.
void check_options(const EngineOptions& options);

// That the backend's kernels can do the model's heads, which they would refuse in the middle of a
// step otherwise. `capped`: compression is on, whose kernels can do fewer. `model`: named in errors.
void check_heads(const ModelConfig& config,
                 const Backend& backend,
                 bool capped,
                 const std::string& model);

struct MemoryPart {
  std::string name;
  size_t bytes = 0;
};

// Throws kResourceExhausted when the parts need more than `available` bytes: the message names each
// part with its size, and `limit`, where `available` comes from.
void check_memory(std::span<const MemoryPart> parts, size_t available, const std::string& limit);

}  // namespace zipage
