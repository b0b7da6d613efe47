// Takes what a batch kept from the device to a KvTraceSink. Waits for the stream: for looking,
// not for speed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "blocks/ids.h"
#include "compress/kv_trace.h"
#include "compress/scratch_plan.h"

namespace zipage {

class TraceRecorder {
 public:
  TraceRecorder(Backend& backend, const PagedKvView& kv, const ScratchPlan& plan);
  static size_t host_bytes(const ScratchPlan& plan, const CompressionModel& model);

  void set_sink(KvTraceSink* sink) { sink_ = sink; }
  // After compaction of the layers of `ops`. score and kept lie on the device; kept rows are
  // batch.max_keep long.
  void record(std::span<const CompressJob> jobs,
              const CompressionOpArgs& ops,
              const float* score,
              const int32_t* kept,
              Stream& stream);

 private:
  Backend& backend_;
  const PagedKvView& kv_;
  KvTraceSink* sink_ = nullptr;
  Buffer score_, kept_, positions_;  // host
  KvTraceRecord record_;
};

}  // namespace zipage
