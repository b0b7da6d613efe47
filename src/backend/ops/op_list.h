// Every op of a backend. An op is one line, op(name, arguments), at the end of the page of its
// contract: transformer.h, sampling.h or compression.h. From these lines come the interface
// (backend.h), the declarations and the dispatch of each device, and the backend of the tests that
// forwards to another one. docs/howto/add-an-op.md walks through an example.
//
//   #define ZIPAGE_DECLARE(name, Args) void name(const Args& args, Stream& stream) override;
//   ZIPAGE_OPS(ZIPAGE_DECLARE)
//   #undef ZIPAGE_DECLARE
//
// An op enqueues its work on `stream` and returns; any stream of the backend, the engine's thread.
#pragma once

#include "backend/ops/compression.h"
#include "backend/ops/sampling.h"
#include "backend/ops/transformer.h"

#define ZIPAGE_OPS(op)       \
  ZIPAGE_TRANSFORMER_OPS(op) \
  ZIPAGE_SAMPLING_OPS(op)    \
  ZIPAGE_COMPRESSION_OPS(op)
