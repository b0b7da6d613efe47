// Puts the names of requests into the records of their compressions (EngineOptions::kv_trace).
#pragma once

#include <utility>

#include "base/log.h"
#include "compress/kv_trace.h"
#include "engine/batch_builder.h"

namespace zipage {

// A trace that cannot be written any more ends with a warning: no request fails for it.
// Thread: the one that runs steps.
class KvTraceLog final : public KvTraceSink {
 public:
  KvTraceLog(KvTraceWriter& writer, const SequenceTable& sequences, Logger log)
      : writer_(writer), sequences_(sequences), log_(std::move(log)) {}
  bool is_open() const override { return open_; }
  void take(KvTraceRecord& record) override;

 private:
  KvTraceWriter& writer_;
  const SequenceTable& sequences_;
  const Logger log_;
  bool open_ = true;
};

}  // namespace zipage
