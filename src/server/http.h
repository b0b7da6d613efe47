// A request and its answer, without sockets: what handlers see.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zipage::server {

struct Header {
  std::string name, value;
};

struct HttpRequest {
  std::string method{}, path{}, query{}, body{};
  // Names in lower case.
  std::vector<Header> headers{};
  // X-Request-Id, the client's or ours.
  std::string request_id{};
  // Whom the request is meant for: the authority of an absolute-form target, else the Host header.
  std::string host{};
  bool keep_alive = true;
  bool http10 = false;
  // How the body comes: with a length, in chunks, or (neither) not at all.
  std::optional<uint64_t> content_length{};
  bool chunked = false;
  // What the body takes of the budget for bodies, for as long as it is kept (a BodyBudget::Lease).
  std::shared_ptr<void> body_lease{};

  bool has_body() const { return chunked || content_length.value_or(0) > 0; }

  // The first header of that (lower-case) name; empty when there is none.
  std::string_view header(std::string_view name) const {
    for (const Header& header : headers) {
      if (header.name == name) return header.value;
    }
    return {};
  }
};

struct HttpResponse {
  int status = 200;
  std::string body{};
  std::string content_type = "application/json";
  std::vector<Header> headers{};
};

// Where a handler puts its answer, now or later: respond() once, or begin_stream(), write()...,
// end_stream(). Thread: the io thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(HttpResponse response) = 0;
  // After a failure of ours: respond(), or, when an answer has begun already, its end.
  virtual void fail(HttpResponse response) = 0;
  // Sends the head at once; its body is ignored.
  virtual void begin_stream(HttpResponse head) = 0;
  // Before the writes of a step: false when the client is gone, or so far behind that it is dropped
  // now. on_gone's callback has then been called.
  virtual bool ready() = 0;
  // False when the client is gone.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  // Called at most once: the client went away before the answer was complete.
  virtual void on_gone(std::function<void()> callback) = 0;
};

const char* reason_phrase(int status);

}  // namespace zipage::server
