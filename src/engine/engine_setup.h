// Builds an engine's parts from its options: model, device, memory plan, caches, scheduler.
#pragma once

#include <memory>

#include "zipage/engine.h"
#include "zipage/tokenizer.h"

#include "backend/backend.h"
#include "base/log.h"
#include "compress/compressor.h"
#include "compress/kv_trace.h"
#include "engine/model_runner.h"
#include "kvcache/kv_cache.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/generation_config.h"
#include "schedule/scheduler.h"

namespace zipage {

// In the order of construction: later parts refer to earlier ones.
struct EngineParts {
  Logger log;
  EngineInfo info;
  ModelConfig config;
  GenerationConfig generation;
  std::unique_ptr<KvTraceWriter> kv_trace;  // null: not asked for
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Compressor> compressor;  // null: full KV only
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<ModelRunner> runner;
  int32_t max_bias = 0;  // a request: so many for each of max_num_seqs fit in a step
  int32_t max_logprobs = 0;
};

// Throws Error naming the option, file or tensor at fault.
// `backend`: the one to use, instead of the one that options.device names; null: none.
EngineParts build_engine_parts(const EngineOptions& options,
                               std::unique_ptr<Backend> backend = nullptr);

}  // namespace zipage
