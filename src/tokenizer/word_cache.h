// What short pieces of one text have become: natural text repeats its words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace zipage {

// Direct mapped: a piece stays until another one takes its place. Not thread-safe: one a call.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 16;
  static constexpr size_t kMaxItems = 11;
  // Texts shorter than this are done before a cache pays.
  static constexpr size_t kWorthwhileBytes = 4096;

  // A piece of 1 to kMaxBytes bytes as two numbers; with the length they are the piece. `tag`
  // separates uses of one cache.
  struct Key {
    Key(std::string_view piece, uint8_t use)
        : length(static_cast<uint8_t>(piece.size())), tag(use) {
      const char* data = piece.data();
      const size_t n = piece.size();
      if (n >= 8) {
        std::memcpy(&low, data, 8);
        std::memcpy(&high, data + n - 8, 8);
      } else if (n >= 4) {
        uint32_t front, back;
        std::memcpy(&front, data, 4);
        std::memcpy(&back, data + n - 4, 4);
        low = front | uint64_t{back} << 32;
      } else {
        low = static_cast<uint8_t>(data[0]) | uint64_t{static_cast<uint8_t>(data[n / 2])} << 8 |
              uint64_t{static_cast<uint8_t>(data[n - 1])} << 16;
      }
    }
    uint64_t low = 0, high = 0;
    uint8_t length, tag;
  };

  explicit WordCache(size_t num_entries_log2 = 12)
      : entries_(size_t{1} << num_entries_log2), shift_(static_cast<int>(64 - num_entries_log2)) {}

  static bool fits(std::string_view piece) { return !piece.empty() && piece.size() <= kMaxBytes; }

  // Null data when the piece is not there; what was stored may be nothing.
  std::span<const int32_t> find(const Key& key) const {
    const Entry& entry = entries_[index(key)];
    if (entry.low != key.low || entry.high != key.high || entry.length != key.length ||
        entry.tag != key.tag) {
      return {};
    }
    return {entry.items, entry.count};
  }
  // More than kMaxItems are not kept.
  void store(const Key& key, std::span<const int32_t> items) {
    if (items.size() > kMaxItems) return;
    Entry& entry = entries_[index(key)];
    entry.low = key.low;
    entry.high = key.high;
    entry.length = key.length;
    entry.tag = key.tag;
    entry.count = static_cast<uint8_t>(items.size());
    std::copy(items.begin(), items.end(), entry.items);
  }

 private:
  struct alignas(64) Entry {
    uint64_t low = 0, high = 0;
    uint8_t length = 0, tag = 0, count = 0;  // length 0: empty
    int32_t items[kMaxItems];
  };

  size_t index(const Key& key) const {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u, kOther = 0xC2B2AE3D27D4EB4Fu;
    const uint64_t mixed = (key.low + key.tag) * kOdd ^ (key.high + key.length) * kOther;
    return static_cast<size_t>((mixed ^ mixed >> 29) * kOdd >> shift_);
  }

  std::vector<Entry> entries_;
  int shift_;
};

}  // namespace zipage
