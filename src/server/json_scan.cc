#include "server/json_scan.h"

#include <fmt/format.h>
#include <utility>

namespace zipage::server {
namespace {

// Longer names are no field's.
constexpr size_t kLongestKey = 80;

}  // namespace

JsonScan::JsonScan(std::shared_ptr<const CountLimits> limits) : limits_(std::move(limits)) {}

bool JsonScan::fail(std::string error) {
  failed_ = true;
  error_ = std::move(error);
  return false;
}

// The key of a field is read: its counts begin.
void JsonScan::begin_field() {
  items_ = 0;
  values_ = 1;
  limit_ = {{}, limits_->other_items, limits_->other_values};
  for (const CountLimit& limit : limits_->fields) {
    if (limit.field == key_) limit_ = limit;
  }
}

// A list or an object begins, with a first value unless it is empty.
void JsonScan::open() {
  if (++depth_ > limits_->depth) {
    key_.clear();
    fail(fmt::format("nested more than {} levels deep", limits_->depth));
  } else if (depth_ == 1) {
    key_expected_ = true;
  } else {
    ++values_;
    if (depth_ == 2) items_ = 1;
  }
}

// Another value follows.
void JsonScan::separate() {
  if (depth_ == 1) {
    key_expected_ = true;
    // A list where the object should be has no keys to count.
    if (++separators_ >= limits_->members) {
      key_.clear();
      fail(fmt::format("more than {} fields", limits_->members));
    }
  } else if (depth_ >= 2) {
    ++values_;
    if (depth_ == 2) ++items_;
  }
}

void JsonScan::feed_structure(char c) {
  switch (c) {
    case '"':
      in_string_ = true;
      reading_key_ = std::exchange(key_expected_, false);
      if (reading_key_) key_.clear();
      return;
    case '{':
    case '[':
      open();
      break;
    case ',':
      separate();
      break;
    case '}':
    case ']':
      if (depth_ > 0) --depth_;
      return;
    default:
      return;
  }
  if (failed_ || depth_ < 2) return;
  if (items_ > limit_.items) {
    fail(fmt::format("more than {} entries", limit_.items));
  } else if (values_ > limit_.values) {
    fail(fmt::format("more than {} values", limit_.values));
  }
}

bool JsonScan::feed(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && !failed_; ++i) {
    const char c = bytes[i];
    if (!in_string_) {
      feed_structure(c);
      continue;
    }
    if (!reading_key_ && !escaped_ && c != '\\' && c != '"') continue;
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (reading_key_) begin_field();
      reading_key_ = false;
      continue;
    }
    if (reading_key_ && key_.size() < kLongestKey) key_ += c;
  }
  if (failed_) field_ = key_;
  return !failed_;
}

}  // namespace zipage::server
