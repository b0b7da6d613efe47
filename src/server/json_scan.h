// Counts what is in a JSON body while it comes, and says at the first byte that is too much.
//
// A body of some megabytes can hold millions of values: as objects they take a hundred times its
// size and seconds to build and to free. Counting commas and brackets takes about a nanosecond a
// byte, so that such a body is refused after its first kilobytes. The scan accepts everything that
// is JSON within the limits; what is not JSON is left for the parser to say.
//
//   JsonScan scan(limits);
//   if (!scan.feed(bytes)) fail(scan.field(), scan.error());
//
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zipage::server {

// What one field of the body may hold.
struct CountLimit {
  std::string_view field;
  // Elements of its list, or members of its object.
  int64_t items = 0;
  // Values in it at any depth, itself included.
  int64_t values = 0;
};

struct CountLimits {
  std::vector<CountLimit> fields;
  // For each field that is not named.
  int64_t other_items = 1024, other_values = 4096;
  // Fields of the body, and values within values.
  int64_t members = 256, depth = 32;
};

class JsonScan {
 public:
  explicit JsonScan(std::shared_ptr<const CountLimits> limits);

  // The next bytes. False when a limit is passed: field() and error() say which.
  bool feed(std::string_view bytes);
  // The field at fault; empty for the body as a whole.
  const std::string& field() const { return field_; }
  const std::string& error() const { return error_; }

 private:
  void feed_structure(char c);
  void open();
  void separate();
  void begin_field();
  bool fail(std::string error);

  std::shared_ptr<const CountLimits> limits_;
  CountLimit limit_;
  std::string key_, field_, error_;
  int64_t depth_ = 0, separators_ = 0, items_ = 0, values_ = 0;
  bool in_string_ = false, escaped_ = false, reading_key_ = false, key_expected_ = false;
  bool failed_ = false;
};

}  // namespace zipage::server
