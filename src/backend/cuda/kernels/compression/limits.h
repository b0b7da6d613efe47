// Sizes on which the compression kernels and their workspace agree.
#pragma once

#include <cstddef>

namespace zipage::compression {

// Partial results of one launch: a batch that needs more is run in several launches.
inline constexpr size_t kPartialBytes = size_t{24} << 20;
inline constexpr size_t kAlignmentBytes = 4096;  // between the arrays of a workspace

}  // namespace zipage::compression
