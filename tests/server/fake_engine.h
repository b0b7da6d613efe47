// An engine that says what a test tells it to, one byte a step, and a tokenizer whose tokens are
// bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "zipage/engine.h"
#include "zipage/tokenizer.h"

namespace zipage::testing_server {

// Ids 0..255 are bytes; 256 is the end.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    added_special_tokens = options.add_special_tokens;
    std::vector<int32_t> ids;
    for (const unsigned char c : text) ids.push_back(c);
    return ids;
  }
  std::string decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += id_to_bytes(id);
    return text;
  }
  std::unique_ptr<IncrementalDecoder> new_decoder(bool) const override { return nullptr; }
  int32_t vocab_size() const override { return 257; }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string id_to_token(int32_t id) const override { return id_to_bytes(id); }
  std::string id_to_bytes(int32_t id) const override {
    return id < 256 ? std::string(1, static_cast<char>(id)) : std::string();
  }
  bool is_special(int32_t id) const override { return id == 256; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return 256; }
  bool has_chat_template() const override { return true; }
  std::string chat_template() const override { return "{{ messages }}"; }
  // The messages, what chat_kwargs says, the template's own text, then "assistant:".
  Result<std::string> apply_chat_template(const std::string& messages,
                                          const ChatOptions& options) const override {
    std::string text = messages + options.template_kwargs + options.chat_template;
    if (options.continue_final_message) text += "(continued)";
    if (options.add_generation_prompt) text += "assistant:" + generation_suffix;
    return text;
  }
  mutable bool added_special_tokens = false;  // asked of the last encode()
  std::string generation_suffix;              // "<think>\n" for templates that open the thought
};

class FakeEngine : public Engine {
 public:
  FakeEngine() {
    info_.model_name = "fake";
    info_.vocab_size = 257;
    info_.max_model_len = 4096;
    info_.block_size = 16;
    info_.num_blocks = 100;
  }

  // What each sequence says; the end comes after it.
  std::string answer = "hello";
  Status refusal;                                      // of the next submit()
  int64_t num_used_blocks = 0, num_cached_blocks = 0;  // of stats(); cached ones are free
  std::function<void()> step_done;
  // Of every output.
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  ByteTokenizer bytes;
  std::vector<Request> requests;  // submitted so far
  std::vector<RequestId> aborted;

  Result<RequestId> submit(Request request, OutputCallback callback) override {
    std::lock_guard lock(mutex_);
    if (!refusal.ok()) return std::exchange(refusal, Status());
    if (Status status = request.sampling.validate(257); !status.ok()) return status;
    if (request.prompt_token_ids.empty())
      return Status(StatusCode::kInvalidArgument, "prompt: empty; at least one token is needed");
    if (request.sampling.prompt_logprobs.value_or(0) > 20)
      return Status(StatusCode::kInvalidArgument, "prompt_logprobs: more than 20");
    const RequestId id = next_++;
    requests.push_back(request);
    for (int32_t i = 0; i < request.sampling.n; ++i) live_.push_back({id, i, 0, request, callback});
    return id;
  }
  void abort(RequestId id) override {
    std::lock_guard lock(mutex_);
    aborted.push_back(id);
  }
  bool step() override;
  void run_until_idle() override {
    while (step()) {
    }
  }
  void start() override {}
  void stop() override {}
  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.num_blocks = info_.num_blocks;
    stats.num_free_blocks = info_.num_blocks - num_used_blocks;
    stats.num_cached_blocks = num_cached_blocks;
    stats.num_running = static_cast<int64_t>(live_.size());
    stats.generation_tokens = generated_;
    return stats;
  }
  Status health() const override {
    std::lock_guard lock(mutex_);
    return health_;
  }
  void set_health(Status status) {
    std::lock_guard lock(mutex_);
    health_ = std::move(status);
  }
  const EngineInfo& info() const override { return info_; }
  EngineInfo& changed_info() { return info_; }
  const Tokenizer& tokenizer() const override { return bytes; }
  SamplingParams default_sampling_params() const override { return {}; }
  void reset_prefix_cache() override {}
  void set_profiling(bool) override {}

 private:
  struct Live {
    RequestId id;
    int32_t index;
    size_t done;
    Request request;
    OutputCallback callback;
  };
  RequestOutput next_output(Live& live) const;

  EngineInfo info_;
  mutable std::mutex mutex_;
  Status health_;
  std::vector<Live> live_;
  RequestId next_ = 1;
  int64_t generated_ = 0;
};

inline RequestOutput FakeEngine::next_output(Live& live) const {
  RequestOutput output;
  output.request_id = live.id;
  output.index = live.index;
  output.queue_seconds = queue_seconds;
  output.prefill_seconds = prefill_seconds;
  output.decode_seconds = decode_seconds;
  output.num_prompt_tokens = static_cast<int64_t>(live.request.prompt_token_ids.size());
  const SamplingParams& p = live.request.sampling;
  if (live.done == 0 && live.index == 0 && p.prompt_logprobs) {
    output.prompt_logprobs.emplace_back();
    for (size_t i = 1; i < live.request.prompt_token_ids.size(); ++i) {
      const int32_t id = live.request.prompt_token_ids[i];
      auto& list = output.prompt_logprobs.emplace_back();
      list.push_back({id, -0.5f, 2});
      for (int32_t k = 0; k < *p.prompt_logprobs; ++k)
        list.push_back({k == 1 ? id : 'A' + k, -0.25f * (k + 1), k + 1});
    }
  }
  if (p.max_tokens == 0) {
    output.finish_reason = FinishReason::kLength;
    return output;
  }
  const bool end = live.done == answer.size();
  const int32_t id = end ? 256 : static_cast<unsigned char>(answer[live.done]);
  output.new_token_ids = {id};
  if (!end) output.new_text = answer.substr(live.done, 1);
  if (p.logprobs) {
    std::vector<TokenLogprob> list{{id, -0.25f, 1}};
    for (int32_t k = 0; k < *p.logprobs; ++k)
      list.push_back({k == 0 ? id : 'a' + k, -0.25f - k, k + 1});
    output.new_logprobs.push_back(list);
  }
  ++live.done;
  if (end) {
    output.finish_reason = FinishReason::kStop;
  } else if (p.max_tokens && static_cast<int64_t>(live.done) >= *p.max_tokens) {
    output.finish_reason = FinishReason::kLength;
  }
  return output;
}

inline bool FakeEngine::step() {
  std::vector<std::pair<OutputCallback, RequestOutput>> calls;
  {
    std::lock_guard lock(mutex_);
    std::vector<Live> left;
    for (Live& live : live_) {
      RequestOutput output;
      const bool gone = std::find(aborted.begin(), aborted.end(), live.id) != aborted.end();
      if (gone) {
        output.request_id = live.id;
        output.index = live.index;
        output.finish_reason = FinishReason::kAbort;
      } else {
        output = next_output(live);
        ++generated_;
      }
      calls.emplace_back(live.callback, output);
      if (!output.finished()) left.push_back(std::move(live));
    }
    live_ = std::move(left);
  }
  for (auto& [callback, output] : calls) callback(output);
  if (step_done) step_done();
  std::lock_guard lock(mutex_);
  return !live_.empty();
}

}  // namespace zipage::testing_server
