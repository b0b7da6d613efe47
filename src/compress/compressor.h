// Executes compressions and updates of peak attention on a stream (method.md 1, 3). The constructor
// allocates everything, as memory() said; the other calls only enqueue.
//
//   Compressor compressor(backend, kv_cache.view(), model, options.compression, limits);
//   // Rows that reached a length where F is updated.
//   compressor.update_peaks(updates, main_stream);
//   for (PlannedBatch& batch : compressor.plan(std::move(jobs), stream)) {
//     compressor.run(batch, stream);
//     // When the stream reaches it, the jobs of the batch are done.
//     event->record(stream);
//   }
//
// Scratch is shared by all batches: use one stream for plan() and run(), which waits for the
// updates of the same sequences, and one for update_peaks() (they may be the same).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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
  // N_max of the largest capped budget.
  int32_t max_blocks_per_seq = 0;
  // Tokens: the longest prompt that may meet its first compression.
  int64_t max_model_len = 0;
  // Jobs of one plan(); updates of one update_peaks(): usually max_num_seqs.
  int32_t max_launch_jobs = 256;
  // Jobs whose scores exist at one time: scratch grows with it (CPU 2-4, GPU 16).
  int32_t max_batch_jobs = 4;
  // set_trace() may be called.
  bool trace = false;
};

struct CompressorMemory {
  size_t device_bytes = 0;  // part of the memory plan's reserved_bytes
  size_t host_bytes = 0;    // pinned staging of job tables
};

// Jobs that run() compresses together: of one policy, so that its ops serve all of them.
struct PlannedBatch {
  std::vector<CompressJob> jobs;
  // Why the jobs cannot run, or ok; run() throws it.
  Status status;

  // The compressor's own.
  bool is_long = false;   // longer than the score cache: alone, and fewer layers at a time
  bool has_f = true;      // false: F is made of the last window (method.md 3.2)
  int32_t first_row = 0;  // of the plan's job tables
  uint64_t plan = 0;
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

  // Divides jobs into batches, in the order in which they are to run, and copies their tables to
  // the device. At most max_launch_jobs of any policies and budgets; a sequence is in one of them
  // at most. A job that cannot run is in a batch of its own, so that it leaves the others alone.
  std::vector<PlannedBatch> plan(std::vector<CompressJob> jobs, Stream& stream);

  // Enqueues a batch of the latest plan(). What is kept does not depend on which jobs share a
  // batch. When it throws, a part of the work may be on the stream.
  void run(const PlannedBatch& batch, Stream& stream);

  // At most max_launch_jobs. Before run() of the same sequences in stream order.
  void update_peaks(std::span<const PeakUpdate> updates, Stream& stream);

  // Records what each later compression keeps; null: stop. run() waits for the stream while it
  // is on. The sink must outlive its use here. Only with limits.trace.
  void set_trace(KvTraceSink* sink);

  size_t device_bytes() const;  // allocated; as memory() said

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zipage
