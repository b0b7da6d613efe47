// Reads HTTP/1.x requests out of bytes as they come. Knows no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "server/http.h"

namespace zipage::server {

struct ReadLimits {
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = 16 << 20;
};

// What is wrong with a request, as an answer; the connection cannot be used after it.
struct ReadError {
  int status = 0;  // 0: nothing
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
  // something unfinished (give them again with more behind) or of the next request.
  size_t feed(std::string_view bytes);
  bool done() const;
  bool header_done() const;
  // Once, after header_done(): the client waits for "100 Continue" before it sends the body.
  bool take_expects_continue();
  const ReadError& error() const { return error_; }
  HttpRequest take();  // after done()

 private:
  struct Parser;
  const ReadLimits limits_;
  std::unique_ptr<Parser> parser_;
  ReadError error_;
  bool continue_taken_ = false;
};

}  // namespace zipage::server
