// Token texts by id and ids by token text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zipage {

// A hash of short strings, eight bytes a step.
uint64_t hash_bytes(std::string_view text);

// Strings to ids: open addressing over one arena. Built once, then read from any thread.
class StringIndex {
 public:
  // Room for `num_strings`; more may be added.
  explicit StringIndex(size_t num_strings = 0);
  // The id that was there before, if any; the first one stays.
  std::optional<int32_t> insert(std::string_view text, int32_t id);
  // -1 if unknown.
  int32_t find(std::string_view text) const {
    const uint64_t hash = hash_bytes(text);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.id < 0) return -1;
      if (is(entry, text, hash)) return entry.id;
    }
  }
  // Calls sink(text, id) for all, in no order.
  template <typename Sink>
  void for_each(const Sink& sink) const {
    for (const Entry& entry : entries_) {
      if (entry.id < 0) continue;
      sink(text_of(entry), entry.id);
    }
  }
  size_t size() const { return size_; }
  size_t max_length() const { return max_length_; }

 private:
  struct Entry {
    uint32_t tag = 0;
    int32_t id = -1;
    uint32_t offset = 0;
    uint32_t length = 0;
  };
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(arena_).substr(entry.offset, entry.length);
  }
  bool is(const Entry& entry, std::string_view text, uint64_t hash) const {
    return entry.tag == static_cast<uint32_t>(hash >> 32) && entry.length == text.size() &&
           text_of(entry) == text;
  }
  void grow();

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  size_t size_ = 0;
  size_t max_length_ = 0;
  std::string arena_;
};

// Strings by id in one arena.
class StringTable {
 public:
  void assign(const std::vector<std::string>& strings);
  std::string_view at(int32_t id) const {  // "" out of range
    if (id < 0 || static_cast<size_t>(id) + 1 >= ends_.size()) return {};
    const auto i = static_cast<size_t>(id);
    return std::string_view(arena_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }
  int32_t size() const { return ends_.empty() ? 0 : static_cast<int32_t>(ends_.size() - 1); }

 private:
  std::string arena_;
  std::vector<uint32_t> ends_;  // [num_strings + 1]
};

}  // namespace zipage
