// What a client of HTTP reads: responses out of bytes, server-sent events out of bodies. Knows no
// socket.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace zipage::cli {

// http[s]://HOST[:PORT][/PREFIX]
struct BaseUrl {
  bool tls = false;
  std::string host, port, prefix;
  std::string text() const;  // without the prefix
};

// Throws kInvalidArgument that names `flag`.
BaseUrl parse_base_url(const std::string& flag, const std::string& text);

// Reads one HTTP/1.x response; a new object for the next one.
class ResponseReader {
 public:
  ResponseReader();
  ~ResponseReader();
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  // Takes bytes from the front of `bytes`; the number taken. Those left are the beginning of
  // something unfinished: give them again with more behind.
  size_t feed(std::string_view bytes);
  // The peer closed: the end of a body that has no length.
  void end_of_input();

  bool header_done() const;
  bool done() const;
  const std::string& error() const { return error_; }  // empty: none
  int status() const;
  bool keep_alive() const;
  std::string_view header(std::string_view name) const;  // "" when there is none
  // The body's bytes since the last call.
  std::string take_body();

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
  std::string error_;
};

// The data of server-sent events.
class EventReader {
 public:
  // Calls each(std::string_view data) for every event that `bytes` completes.
  template <typename Each>
  void feed(std::string_view bytes, Each&& each) {
    pending_ += bytes;
    size_t at = 0;
    for (size_t end = 0; (end = pending_.find('\n', at)) != std::string::npos; at = end + 1) {
      std::string_view line(pending_.data() + at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) {
        if (!data_.empty()) each(std::string_view(data_));
        data_.clear();
      } else if (line.starts_with("data:")) {
        line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
        if (!data_.empty()) data_ += '\n';
        data_ += line;
      }
    }
    pending_.erase(0, at);
  }

 private:
  std::string pending_, data_;
};

}  // namespace zipage::cli
