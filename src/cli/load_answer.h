// What a client reads out of an answer of the OpenAI API: tokens, text, usage, errors.
#pragma once

#include <string>
#include <string_view>

#include "cli/load_generator.h"

namespace zipage::cli {

// Fills a LoadResult. Knows no socket.
class AnswerNotes {
 public:
  AnswerNotes(LoadResult& result, bool keep_output) : result_(result), keep_output_(keep_output) {}
  // The data of one event of a stream, which came at `now`.
  void event(std::string_view data, double now);
  // The body of an answer that is no stream.
  void whole(std::string_view body, double now);
  // At the end of the response: what is missing becomes the failure.
  void finish(bool streamed);

 private:
  void fail(const std::string& reason) {
    if (result_.failure.empty()) result_.failure = reason;
  }

  LoadResult& result_;
  const bool keep_output_;
  bool done_ = false, finished_ = false, counted_ = false;
};

// {"error": {"message": ...}} -> the message; otherwise the beginning of the body.
std::string error_message(std::string_view body);

}  // namespace zipage::cli
