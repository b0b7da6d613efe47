// A request of /v1/chat/completions or /v1/completions from submission to its last byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer.h"
#include "server/generation_request.h"
#include "server/mailbox.h"
#include "server/reasoning.h"

namespace zipage::server {

class Service;

// Thread: the io thread.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(Service& service,
             uint64_t key,
             GenerationRequest request,
             std::shared_ptr<Exchange> exchange);
  ~Generation();

  // Submits every prompt. Throws ApiError when the engine refuses one; those before it are aborted.
  void start();
  // True when it is the first delivery since flush().
  bool deliver(Delivery& delivery);
  // Sends what has come: chunks of a stream, or the whole answer at its end.
  void flush();
  // Ends what runs in the engine.
  void abort();
  // Nothing is left in the engine.
  bool ended() const { return live_sequences_ == 0; }
  uint64_t key() const { return key_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Choice {
    size_t prompt = 0;
    Piece piece;
    ReasoningSplitter splitter{ReasoningMode::kOff};
    FinishReason finish_reason = FinishReason::kNone;
    std::string stop_reason;
    TextOffsets offsets;
    int64_t num_tokens = 0;
    bool announced = false, closed = false;  // its first and last chunk are sent
    Time first_token{}, last_token{};
  };

  void submit(size_t prompt);
  void add_output(Choice& choice, Delivery& delivery);
  void count(Choice& choice, const Delivery& delivery);
  void sequence_ended(const Choice& choice, const Delivery& delivery);
  void send_chunks();
  bool send_chunk(Choice& choice);
  void send_answer();
  void send_error(const Status& error);
  void close();
  ChoiceView view(Choice& choice) const;
  boost::json::value prompt_logprobs(size_t prompt) const;
  // One event: the head, then `rest`, then "}".
  bool event(std::string_view rest);
  Usage usage() const;

  Service& service_;
  const uint64_t key_;
  const GenerationRequest request_;
  std::shared_ptr<Exchange> exchange_;  // null: nobody listens any more
  std::vector<RequestId> ids_;          // of the engine, one a prompt
  std::vector<Choice> choices_;         // prompt * n + i
  std::vector<int64_t> live_of_prompt_, cached_tokens_;
  std::vector<std::string> echoes_;                                      // [prompts]
  std::vector<std::vector<std::vector<TokenLogprob>>> prompt_logprobs_;  // [prompts]
  int64_t live_sequences_ = 0;
  const Time arrived_ = std::chrono::steady_clock::now();
  const int64_t created_;
  std::string head_;  // of every event: the answer's head as text, without its "}"
  Status error_;
  bool touched_ = false;
};

}  // namespace zipage::server
