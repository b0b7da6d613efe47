// One answer of a connection as bytes: status line, headers, chunks. Knows no socket.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace zipage::server {

struct TurnOptions {
  bool http10 = false;                  // no chunked encoding: the end of the stream closes
  bool keep_alive = true;               // what the client wants
  bool head_only = false;               // HEAD: headers without a body
  size_t max_buffered_bytes = 1 << 20;  // of output that the client has not taken
};

// Thread: the io thread.
class Turn : public Exchange {
 public:
  // `wake` is called whenever take_output() has something new, or the turn has ended.
  Turn(TurnOptions options, std::function<void()> wake);

  void respond(HttpResponse response) override;
  void fail(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  bool ready() override;
  bool write(std::string_view bytes) override;
  void end_stream() override;
  void on_gone(std::function<void()> callback) override { gone_ = std::move(callback); }

  // Headers that go with whatever the answer is.
  void add_header(std::string name, std::string value);
  // Called once with the status when the answer is complete, or was given up.
  void on_done(std::function<void(int status)> callback) { done_ = std::move(callback); }
  void close_after() { options_.keep_alive = false; }

  bool has_output() const { return !output_.empty(); }
  std::string take_output();
  bool started() const { return started_; }
  bool finished() const { return finished_; }
  bool abandoned() const { return abandoned_; }  // nothing more may be sent
  bool keep_alive() const { return options_.keep_alive; }
  int status() const { return status_; }

  // The connection says that the client is gone (or must be dropped).
  void abandon();

 private:
  void write_head(const HttpResponse& response, bool streamed);
  void end();

  TurnOptions options_;
  std::function<void()> wake_, gone_;
  std::function<void(int)> done_;
  std::vector<Header> headers_;
  std::string output_;
  int status_ = 0;
  bool started_ = false, finished_ = false, abandoned_ = false, chunked_ = false;
};

}  // namespace zipage::server
