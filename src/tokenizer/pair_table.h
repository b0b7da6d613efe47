// Pairs of token ids to values: open addressing, filled once and then read from any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zipage {

template <typename Value>
class PairTable {
 public:
  explicit PairTable(size_t max_pairs)
      : entries_(std::max<size_t>(16, std::bit_ceil(2 * max_pairs + 2))),
        mask_(entries_.size() - 1),
        shift_(64 - std::countr_zero(entries_.size())) {}

  // The value that a pair got first stays.
  void insert(int32_t left, int32_t right, const Value& value) {
    const uint64_t key = key_of(left, right);
    size_t i = (key * kMultiplier) >> shift_;
    while (entries_[i].key != kNoPair && entries_[i].key != key) i = (i + 1) & mask_;
    if (entries_[i].key == kNoPair) entries_[i] = {key, value};
  }
  // Null if the pair is unknown.
  const Value* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = (key * kMultiplier) >> shift_;; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.key == key) return &entry.value;
      if (entry.key == kNoPair) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct Entry {
    uint64_t key = kNoPair;
    [[no_unique_address]] Value value;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }

  std::vector<Entry> entries_;
  size_t mask_;
  int shift_;
};

}  // namespace zipage
