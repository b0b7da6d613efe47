// Reads HTTP/1.x requests out of bytes as they come. Knows no socket.
//
// In two parts, so that a request can be refused before its body is read: feed() stops at the end of
// the headers, and goes on with the body after accept_body().
//
//   RequestReader reader(limits);
//   input.erase(0, reader.feed(input));
//   if (reader.head_ready() && allowed(reader.head())) reader.accept_body(most_bytes);
//   input.erase(0, reader.feed(input));
//   if (reader.done()) handle(reader.take());
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "server/http.h"

namespace zipage::server {

struct ReadLimits {
  uint32_t max_header_bytes = 16 << 10;
  // 0: 16 MiB, or 32 bytes for each token of the model's context where that is more.
  uint64_t max_body_bytes = 0;
};

// What is wrong with a request, as an answer; the connection cannot be used after it.
struct ReadError {
  // 0: nothing.
  int status = 0;
  std::string message;
};

// Reads one request; a new object for the next one.
class RequestReader {
 public:
  explicit RequestReader(const ReadLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes bytes from the front of `bytes`; the number taken. Those left are the beginning of
  // something unfinished (give them again with more behind), a body that is not accepted yet, or
  // the next request.
  size_t feed(std::string_view bytes);
  // The headers are whole and well-formed.
  bool head_ready() const { return head_ready_ && error_.status == 0; }
  // The request without its body. After head_ready().
  const HttpRequest& head() const { return head_; }
  // feed() goes on with the body, which may have so many bytes. After head_ready().
  void accept_body(uint64_t most_bytes);
  // The client waits for "100 Continue" before it sends the body. After head_ready().
  bool expects_continue() const;
  // What has come of the body, without its framing. After accept_body().
  std::string_view body() const;
  bool done() const;
  const ReadError& error() const { return error_; }
  // The whole request. After done().
  HttpRequest take();

 private:
  struct Parser;
  void finish_head();
  void read_target();
  void check_framing();

  const ReadLimits limits_;
  std::unique_ptr<Parser> parser_;
  HttpRequest head_;
  ReadError error_;
  uint64_t most_body_bytes_ = 0;
  size_t skipped_bytes_ = 0;
  bool begun_ = false, head_ready_ = false, accepted_ = false;
};

}  // namespace zipage::server
