// Executes compressions and peak updates on a stream (method.md 1, 3). Everything is allocated by
// the constructor, as planned by memory(); launch() and update_peaks() only enqueue.
//
//   Compressor compressor(backend, kv_cache.view(), model, options.compression, limits);
//   compressor.update_peaks(updates, main_stream);      // rows that reached a length where F is
//   updated event->record(main_stream); event->block(compression_stream); compressor.launch(jobs,
//   compression_stream);        // then record an event: the jobs are done when it is reached
//
// Scratch is shared by all launches: use one stream for launch() and one for update_peaks() (they
// may be the same).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "zipage/options.h"
#include "zipage/status.h"

#include "backend/backend.h"
#include "backend/kv_view.h"
#include "blocks/ids.h"
#include "compress/compression_model.h"

namespace zipage {

class KvTraceSink;

struct CompressorLimits {
  int32_t block_size = 0;
  int32_t max_blocks_per_seq = 0;  // N_max of the largest capped budget
  int64_t max_model_len = 0;       // tokens: longest prompt that may meet its first compression
  int32_t max_launch_jobs =
      256;  // jobs of one launch(); updates of one update_peaks(): usually max_num_seqs
  int32_t max_batch_jobs =
      4;  // jobs whose scores exist at one time: scratch grows with it (CPU 2-4, GPU 16)
  bool trace = false;  // set_trace() may be called
};

struct CompressorMemory {
  size_t device_bytes = 0;  // part of the memory plan's reserved_bytes
  size_t host_bytes = 0;    // pinned staging of job tables
};

// F of one row that reached a length where it is updated (method.md 3.2). Lengths count KV entries;
// where a plan counts true tokens (PlannedRow), an update `t` tokens after the last one has
// previous_length = length - t, and 0 stays 0.
struct PeakUpdate {
  SlotId slot;
  int32_t length = 0;               // L: KV entries stored, <= N_max * b of the largest budget
  int32_t previous_length = 0;      // L' of the last update; 0: none
  std::span<const BlockId> blocks;  // the row's table, at least ceil(L / b)
};

// Thread: the engine's.
class Compressor {
 public:
  // `options`: as the user gave them; the defaults of each policy are filled in here, as jobs may
  // have different policies. Throws Error for options that contradict each other.
  Compressor(Backend& backend,
             const PagedKvView& kv,
             const CompressionModel& model,
             const CompressionOptions& options,
             const CompressorLimits& limits);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  static CompressorMemory memory(const Backend& backend,
                                 const CompressionModel& model,
                                 const CompressionOptions& options,
                                 const CompressorLimits& limits);

  // Why jobs of this policy would be refused, or ok: the options do not suit it, or the cache was
  // planned without what it needs.
  Status can_run(KvPolicy policy) const;

  // Told of jobs that were enqueued together, or that failed to be: then a part of their work may
  // be on the stream.
  using Enqueued = std::function<void(std::span<const CompressJob* const>, const Status&)>;
  // Jobs of any policies and budgets, at most max_launch_jobs; a sequence in one of them at most.
  // The result does not depend on which jobs share a launch. `enqueued` hears of every job once, in
  // batches that end at the place of the stream where it is called: one that fails leaves the
  // others alone. Without it the first failure is thrown.
  void launch(std::span<const CompressJob> jobs, Stream& stream, const Enqueued& enqueued = {});

  // At most max_launch_jobs. Before launch() of the same sequences in stream order.
  void update_peaks(std::span<const PeakUpdate> updates, Stream& stream);

  // Records what each later compression keeps; null: stop. Waits for the stream in launch() while
  // it is on. The sink must outlive its use here. Only with limits.trace.
  void set_trace(KvTraceSink* sink);

  size_t device_bytes() const;  // allocated; as memory() said

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zipage
