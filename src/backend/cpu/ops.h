// The CPU's ops as free functions: one a contract op (backend/ops/*.h says what each does). They
// run to the end on the calling thread and the threads of context.pool, and throw Error on bad
// arguments.
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "backend/cpu/runtime/context.h"

namespace zipage::cpu {

#define ZIPAGE_DECLARE_OP(name, Args) void name(const Args& args, CpuContext& context);
ZIPAGE_OPS(ZIPAGE_DECLARE_OP)
#undef ZIPAGE_DECLARE_OP

// What Backend's functions of these names return.
size_t attention_workspace_bytes(const Backend::Limits& limits, const CpuContext& context);
size_t sample_workspace_bytes(const Backend::Limits& limits, const CpuContext& context);
size_t compression_workspace_bytes(const Backend::Limits& limits,
                                   const CompressionOptions& options,
                                   const CpuContext& context);

}  // namespace zipage::cpu
