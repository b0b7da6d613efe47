// The engine's compressions (method.md 6): launched after a step's commit, reported to the
// scheduler at the step boundary after they are done.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/engine_impl.h"

namespace zipage {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_between(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

}  // namespace

void EngineImpl::launch_compressions(std::vector<CompressJob> jobs) {
  Stream& main = parts_.runner->stream();
  const bool async = compression_stream_ != nullptr;
  Stream& stream = async ? *compression_stream_ : main;
  const auto start = SteadyClock::now();
  std::unique_ptr<Event> begin;
  if (async) {
    const auto computed = parts_.backend->create_event();
    computed->record(main);
    computed->block(stream);
    begin = parts_.backend->create_event();
    begin->record(stream);
  }
  for (PlannedBatch& batch : parts_.compressor->plan(std::move(jobs), stream)) {
    Status status;
    try {
      parts_.compressor->run(batch, stream);
    } catch (...) {
      status = current_exception_status();
    }
    if (async && status.ok()) {
      InFlightCompression flight{std::move(batch.jobs), std::move(begin),
                                 parts_.backend->create_event(), start};
      flight.event->record(stream);
      begin = parts_.backend->create_event();
      begin->record(stream);
      in_flight_.push_back(std::move(flight));
      continue;
    }
    if (!status.ok()) drain(stream);
    for (const CompressJob& job : batch.jobs) end_compression(job, status);
  }
  if (!async) totals_.compression_seconds += seconds_between(start, SteadyClock::now());
}

// Waits for work whose memory is about to be given to others; its failures are known already, or
// belong to jobs that their own events tell of.
void EngineImpl::drain(Stream& stream) {
  try {
    parts_.backend->synchronize(stream);
  } catch (...) {
  }
}

void EngineImpl::finish_compressions(bool wait) {
  for (size_t i = 0; i < in_flight_.size();) {
    Status status;
    try {
      if (wait) in_flight_[i].event->wait();
      if (!in_flight_[i].event->query()) {
        ++i;
        continue;
      }
    } catch (...) {
      status = current_exception_status();
    }
    wait = false;  // one is enough to go on
    const InFlightCompression flight = std::move(in_flight_[i]);
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
    const double device_seconds = status.ok() ? flight.event->seconds_since(*flight.begin) : 0;
    // Where the host times them: a job starts when the one before it ends.
    const auto now = SteadyClock::now();
    totals_.compression_seconds +=
        device_seconds > 0 ? device_seconds
                           : seconds_between(std::max(flight.started, last_compression_end_), now);
    last_compression_end_ = now;
    for (const CompressJob& job : flight.jobs) end_compression(job, status);
  }
}

void EngineImpl::end_compression(const CompressJob& job, const Status& status) {
  if (!status.ok()) require_device(status);
  parts_.scheduler->compression_done(job, status.ok());
  if (!status.ok()) fail_sequence(job.sequence, status);
}

}  // namespace zipage
