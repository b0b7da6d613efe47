// The files of `zipage run-batch`: JSON lines of the OpenAI batch API.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace zipage::cli {

struct BatchItem {
  std::string custom_id, method, url;
  boost::json::object body;
};

// Every line needs custom_id (of its own), method, url and body. Throws Error naming file, line and
// field.
std::vector<BatchItem> read_batch(const std::string& path);

// {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}; `body`: JSON.
std::string batch_line(const std::string& custom_id,
                       const std::string& request_id,
                       int status,
                       const std::string& body);

// The file of answers. One that is there already is gone on with: its whole lines stay, a last line
// that was half written is cut off.
class BatchOutput {
 public:
  // Throws Error when the file cannot be written, is no batch output, holds a custom_id that is not
  // in `known`, or another process writes it.
  BatchOutput(std::string path, const std::unordered_set<std::string>& known);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  const std::unordered_set<std::string>& answered() const { return answered_; }
  bool cut() const { return cut_; }  // a half-written line was cut off
  // Writes the line at once, in full or not at all; throws Error when it cannot be (a full disk).
  void append(const std::string& line);
  void close();  // throws Error when the system could not keep what was written

 private:
  void read_existing(const std::unordered_set<std::string>& known);
  [[noreturn]] void fail_writing(int error);

  const std::string path_;
  int file_ = -1;
  int64_t size_ = 0;  // bytes of whole lines
  std::unordered_set<std::string> answered_;
  bool cut_ = false;
};

}  // namespace zipage::cli
