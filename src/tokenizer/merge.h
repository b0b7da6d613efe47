#pragma once

#include <cstdint>

namespace zipage {

// Two neighbouring tokens that become one; the lowest rank is merged first.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
  uint32_t rank;
};

}  // namespace zipage
