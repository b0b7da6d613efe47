// What the server counts, and its text for Prometheus. Names, labels and buckets are vLLM's; the
// prefix is ours unless told otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "zipage/engine.h"

#include "server/histogram.h"

namespace zipage::server {

// A sequence that has ended, in seconds and tokens.
struct FinishedSequence {
  FinishReason reason = FinishReason::kStop;
  double e2e_seconds = 0, queue_seconds = 0;
  double prefill_seconds = -1, decode_seconds = -1;  // -1: no token came
  int64_t prompt_tokens = 0, generation_tokens = 0;
};

// Thread: the io thread, except iteration().
class Metrics {
 public:
  explicit Metrics(std::string prefix);
  // Buckets of token counts reach up to it. Forgets what was counted in them.
  void set_max_model_len(int64_t tokens);

  void first_token(double seconds) { time_to_first_token_.observe(seconds); }
  void inter_token(double seconds, int64_t tokens) { inter_token_.observe(seconds, tokens); }
  void sequence_finished(const FinishedSequence& sequence);
  // All sequences of a request have ended; the longest one's tokens.
  void request_finished(int64_t max_generation_tokens) {
    max_generation_tokens_.observe(static_cast<double>(max_generation_tokens));
  }
  void request_params(int32_t n, int64_t max_tokens);
  void http_request(const std::string& handler,
                    const std::string& method,
                    int status,
                    double seconds);
  // Tokens of one engine step. Any thread.
  void iteration(int64_t tokens);

  // `stats` and `info` are null while there is no engine.
  std::string render(const EngineStats* stats,
                     const EngineInfo* info,
                     const std::string& model_name) const;

 private:
  void render_engine(class PrometheusText& text,
                     const EngineStats& stats,
                     const EngineInfo& info,
                     const std::string& labels) const;
  void render_requests(class PrometheusText& text, const std::string& labels) const;
  void render_http(class PrometheusText& text) const;
  std::string name(const char* suffix) const { return prefix_ + ":" + suffix; }

  const std::string prefix_;
  Histogram time_to_first_token_, inter_token_, e2e_, queue_, inference_, prefill_, decode_;
  Histogram prompt_tokens_, generation_tokens_, max_generation_tokens_, params_max_tokens_,
      params_n_;
  std::array<int64_t, 4> finished_{};  // stop, length, abort, error
  std::map<std::tuple<std::string, std::string, int>, int64_t> http_requests_;
  std::map<std::string, Histogram> http_seconds_;  // by handler
  mutable std::mutex iteration_mutex_;
  Histogram iteration_tokens_;
};

}  // namespace zipage::server
