// Gathers what the engine's callbacks say about a caller's requests until the caller asks.
//
// Threads: the engine's thread writes, any thread reads. Nothing here touches Python.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "zipage/engine.h"

#include "engine_owner.h"

namespace zipage::py {

// What a sequence gained since it was last taken.
struct SequenceDelta {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<std::vector<TokenLogprob>> logprobs;  // [token_ids]
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_reason;
  Status error;
};

struct RequestDelta {
  std::vector<SequenceDelta> sequences;  // [n]
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  int64_t num_cached_tokens = 0;
  bool finished = false;
};

class Collector {
 public:
  // `every_token`: a request is ready whenever it gained something, not only at its end.
  Collector(std::shared_ptr<EngineOwner> owner, bool every_token);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Queues a request under a key of the caller's that no live request of this collector has.
  Status submit(int64_t key, Request request);
  Status abort(int64_t key);
  // Keys of requests that became ready since the last call, oldest first; waits up to
  // `timeout_seconds` for one.
  std::vector<int64_t> wait(double timeout_seconds);
  // Forgets the request when it is finished. Empty for a key that is not known.
  RequestDelta take(int64_t key);
  // Requests that have not ended.
  int64_t num_live() const;
  // Readable while requests are ready, for an event loop; owned by the collector.
  int file_descriptor() const;

 private:
  struct Ticket {
    RequestId id = 0;
    int64_t num_live = 0;
    bool ready = false;
    RequestDelta delta;
  };
  // What callbacks share with the collector, and may outlive it.
  struct State {
    ~State();
    void add(int64_t key, const RequestOutput& output);

    std::mutex mutex;
    std::condition_variable wake;
    std::unordered_map<int64_t, Ticket> tickets;
    std::deque<int64_t> ready;
    bool every_token = false;
    int event_fd = -1;
  };

  std::shared_ptr<EngineOwner> owner_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace zipage::py
