// Workspace of the compression kernels: bytes of partial results that one unit (job, layer, KV
// head) needs.
#pragma once

#include <cstddef>

namespace zipage::compression {

size_t attention_unit_bytes(int max_length, int group, int head_dim, int window);
size_t center_unit_bytes(int max_length, int head_dim);
size_t redundancy_unit_bytes(int max_length);

}  // namespace zipage::compression
