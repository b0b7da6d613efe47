// What an engine needs of a GPU's memory, by part.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace zipage {

struct MemoryPart {
  std::string name;
  size_t bytes = 0;
};

// Throws kResourceExhausted when the parts need more than `available`: the message names each part
// with its size, and `limit`, where `available` comes from.
void check_device_memory(std::span<const MemoryPart> parts,
                         size_t available,
                         const std::string& limit);

}  // namespace zipage
