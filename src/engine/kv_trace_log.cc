#include "engine/kv_trace_log.h"

#include "base/error.h"

namespace zipage {

void KvTraceLog::take(KvTraceRecord& record) {
  if (!open_) return;  // it failed inside this batch
  record.request_id = 0;
  record.index = 0;
  record.external_id.clear();
  if (const auto found = sequences_.find(record.sequence); found != sequences_.end()) {
    const EngineSequence& sequence = *found->second;
    record.request_id = sequence.request->id;
    record.index = sequence.index;
    record.external_id = sequence.request->external_id;
  }
  try {
    writer_.write(record);
  } catch (...) {
    open_ = false;
    log_.warning("the KV trace ends here, the requests go on: {}",
                 current_exception_status().message());
  }
}

}  // namespace zipage
