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

  // The three steps of its start. Everything counts as in progress from the first on.
  void prepare();
  // Submits every prompt, up to the first that the engine refuses. Any thread; results may be
  // delivered meanwhile.
  void submit_all();
  // Begins the answer, with what has come already; or answers the engine's refusal and aborts what
  // it took.
  void started();
  // Ends one whose start failed: it is not in progress any more, and somebody else answers the client.
  void withdraw();
  // True when it is the first delivery since flush().
  bool deliver(Delivery& delivery);
  // Sends what has come: chunks of a stream, or the whole answer at its end. A large answer is built
  // by a worker.
  void flush();
  // Ends what runs in the engine.
  void abort();
  // A failure of ours: the client gets an error, the engine's part is ended.
  void fail(const std::string& reason);
  // Nothing is left in the engine.
  bool ended() const { return started_ && live_sequences_ == 0; }
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
    // Its first and last chunk are sent.
    bool announced = false, closed = false;
    Time first_token{}, last_token{};
  };

  Status submit(size_t prompt);
  void drop_unsubmitted();
  void add_output(Choice& choice, Delivery& delivery);
  void count(Choice& choice, const Delivery& delivery);
  void sequence_ended(const Choice& choice, const Delivery& delivery);
  void send_chunks();
  bool send_chunk(Choice& choice);
  void send_answer();
  std::string answer_text();
  bool is_large_answer() const;
  void send_error(const Status& error);
  void close();
  ChoiceView view(Choice& choice) const;
  boost::json::value prompt_logprobs(size_t prompt) const;
  // One event: the head, then `rest`, then "}".
  bool event(std::string_view rest);
  Usage usage() const;

  Service& service_;
  const uint64_t key_;
  GenerationRequest request_;
  // Null: nobody listens any more.
  std::shared_ptr<Exchange> exchange_;
  // Of the engine, one a prompt. Written by submit_all(), read from started() on.
  std::vector<RequestId> ids_;
  Status refusal_;
  // prompt * n + i
  std::vector<Choice> choices_;
  std::vector<int64_t> live_of_prompt_, cached_tokens_;
  // [prompts]
  std::vector<std::string> echoes_;
  std::vector<std::vector<std::vector<TokenLogprob>>> prompt_logprobs_;
  int64_t live_sequences_ = 0;
  bool started_ = false;
  const Time arrived_ = std::chrono::steady_clock::now();
  const int64_t created_;
  // Of every event: the answer's head as text, without its "}".
  std::string head_;
  Status error_;
  bool touched_ = false;
};

}  // namespace zipage::server
