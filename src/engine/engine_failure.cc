// What becomes of requests when something fails. See docs/engine-contract.md.
#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/output_builder.h"

namespace zipage {

void EngineImpl::fail_sequence(SequenceId id, const Status& status) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  parts_.log.write(LogLevel::kError,
                   fmt::format("request {}: {}", found->second->request->id, status.message()));
  begin_output(*found->second, output_);
  output_.finish_reason = FinishReason::kError;
  output_.error = status;
  found->second->request->callback(output_);
  parts_.scheduler->abort(id);
  end_sequence(id);
}

// After a failure on the device. Throws when the device is lost, so that step() ends the engine: it
// would fail every later request, one step at a time.
void EngineImpl::require_device(const Status& failure) {
  const Status device = parts_.backend->device_health();
  if (device.ok()) return;
  throw Error(StatusCode::kUnavailable, fmt::format("{}; it was noticed when this failed: {}",
                                                    device.message(), failure.message()));
}

// What the failed step has queued ends before its blocks, sampler rows and host memory go to
// others.
void EngineImpl::fail_step(const Status& status) {
  require_device(status);
  drain(parts_.runner->stream());
  fail_all(status);
}

// A step failed on the device: what was in it cannot be trusted, and neither can the rest of the
// cache.
void EngineImpl::fail_all(const Status& status) {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  for (const SequenceId id : ids) fail_sequence(id, status);
  pending_.clear();
  parts_.scheduler->reset_prefix_cache();
}

// A bug of ours outside the device's work, a callback that threw, or a lost device: what the
// scheduler believes cannot be trusted any more. Every request is told, and none is taken from now
// on.
void EngineImpl::break_down(const Status& status) {
  std::vector<std::unique_ptr<RequestState>> arrived;
  {
    std::lock_guard lock(mutex_);
    const StatusCode code = status.code() == StatusCode::kUnavailable ? StatusCode::kUnavailable
                                                                      : StatusCode::kInternal;
    broken_ = Status(code, "the engine has stopped: " + status.message());
    arrived.swap(inbox_);
    aborts_.clear();
    reset_prefix_ = false;
    unfinished_sequences_ = 0;
  }
  parts_.log.write(LogLevel::kError, broken_.message());
  const auto tell = [&](const RequestState& request, const RequestOutput& output) {
    try {
      request.callback(output);
    } catch (...) {
    }
  };
  for (const auto& [id, sequence] : sequences_) {
    begin_output(*sequence, output_);
    output_.finish_reason = FinishReason::kError;
    output_.error = broken_;
    tell(*sequence->request, output_);
  }
  for (const auto& request : arrived) {
    for (int32_t i = 0; i < request->sampling().n; ++i) {
      RequestOutput output;
      output.request_id = request->id;
      output.index = i;
      output.finish_reason = FinishReason::kError;
      output.error = broken_;
      tell(*request, output);
    }
  }
  sequences_.clear();
  requests_.clear();
}

}  // namespace zipage
