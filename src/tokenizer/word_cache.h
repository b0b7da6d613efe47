// What short pieces of text have become: natural text repeats its words.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace zipage {

// Every piece has two entries where it can be; it stays until others take its place. Thread-safe
// without a lock: an entry that is being written, or was while it was read, is not there.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 24;
  static constexpr size_t kMaxIds = 12;

  // A piece of 1 to kMaxBytes bytes as numbers; with the length they are the piece. `tag`
  // separates uses of one cache.
  struct Key {
    Key(std::string_view piece, uint8_t use)
        : length(static_cast<uint8_t>(piece.size())), tag(use) {
      const char* data = piece.data();
      const size_t n = piece.size();
      if (n >= 8) {
        words[0] = load<uint64_t>(data);
        words[1] = load<uint64_t>(data + n - 8);
        if (n > 16) words[2] = load<uint64_t>(data + 8);
      } else if (n >= 4) {
        words[0] = load<uint32_t>(data) | load<uint32_t>(data + n - 4) << 32;
      } else {
        words[0] = load<uint8_t>(data) | load<uint8_t>(data + n / 2) << 8 |
                   load<uint8_t>(data + n - 1) << 16;
      }
    }
    std::array<uint64_t, 3> words{};
    uint8_t length, tag;

   private:
    template <typename Word>
    static uint64_t load(const char* data) {
      Word word;
      std::memcpy(&word, data, sizeof word);
      return word;
    }
  };

  explicit WordCache(size_t num_entries_log2 = 14)
      : entries_(size_t{1} << num_entries_log2), shift_(static_cast<int>(64 - num_entries_log2)) {}

  static bool fits(std::string_view piece) { return !piece.empty() && piece.size() <= kMaxBytes; }

  // Appends what was stored, if it is there.
  bool find(const Key& key, std::vector<int32_t>& out) const {
    const size_t first = index(key);
    return find_at(entries_[first], key, out) || find_at(entries_[first ^ 1], key, out);
  }

  // More than kMaxIds are not kept.
  void store(const Key& key, std::span<const int32_t> ids) {
    const bool fits = ids.size() <= kMaxIds && std::all_of(ids.begin(), ids.end(), [](int32_t id) {
                        return static_cast<uint32_t>(id) <= kIdMask;
                      });
    if (!fits) return;
    const size_t first = index(key);
    const size_t second = first ^ 1;
    store_at(entries_[writes(first) <= writes(second) ? first : second], key, ids);
  }

 private:
  // state: bits 0-7 the piece's length (0: none, or being written), 8-15 its tag, 16-23 the number
  // of ids, from 24 on how often the entry was written.
  static constexpr uint64_t kKeyMask = 0xFFFF;
  static constexpr int kCountShift = 16;
  static constexpr int kVersionShift = 24;
  static constexpr int kIdBits = 21;
  static constexpr uint64_t kIdMask = (uint64_t{1} << kIdBits) - 1;
  static constexpr size_t kIdsPerWord = 64 / kIdBits;
  struct alignas(64) Entry {
    std::atomic<uint64_t> state{0};
    std::array<std::atomic<uint64_t>, 3> key{};
    std::array<std::atomic<uint64_t>, kMaxIds / kIdsPerWord> ids{};
  };

  static uint64_t described(const Key& key) { return key.length | uint64_t{key.tag} << 8; }
  size_t index(const Key& key) const {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
    const uint64_t mixed = (key.words[0] + described(key)) * kOdd ^
                           (key.words[1] + key.length) * 0xC2B2AE3D27D4EB4Fu ^
                           key.words[2] * 0x165667B19E3779F9u;
    return static_cast<size_t>((mixed ^ mixed >> 29) * kOdd >> shift_);
  }
  uint64_t writes(size_t entry) const {
    return entries_[entry].state.load(std::memory_order_relaxed) >> kVersionShift;
  }

  static bool find_at(const Entry& entry, const Key& key, std::vector<int32_t>& out) {
    const uint64_t state = entry.state.load(std::memory_order_acquire);
    if ((state & kKeyMask) != described(key)) return false;
    for (size_t i = 0; i < key.words.size(); ++i) {
      if (entry.key[i].load(std::memory_order_acquire) != key.words[i]) return false;
    }
    const size_t old_size = out.size();
    const size_t count = state >> kCountShift & 0xFF;
    for (size_t i = 0; i < count; i += kIdsPerWord) {
      uint64_t ids = entry.ids[i / kIdsPerWord].load(std::memory_order_acquire);
      for (size_t k = i; k < std::min(count, i + kIdsPerWord); ++k, ids >>= kIdBits) {
        out.push_back(static_cast<int32_t>(ids & kIdMask));
      }
    }
    if (entry.state.load(std::memory_order_relaxed) == state) return true;
    out.resize(old_size);
    return false;
  }

  static void store_at(Entry& entry, const Key& key, std::span<const int32_t> ids) {
    uint64_t state = entry.state.load(std::memory_order_relaxed);
    if ((state & kKeyMask) == 0 && state != 0) return;  // another thread is writing
    const uint64_t writing = ((state >> kVersionShift) + 1) << kVersionShift;
    if (!entry.state.compare_exchange_strong(state, writing, std::memory_order_acq_rel)) return;
    for (size_t i = 0; i < key.words.size(); ++i) {
      entry.key[i].store(key.words[i], std::memory_order_release);
    }
    for (size_t i = 0; i < ids.size(); i += kIdsPerWord) {
      uint64_t packed = 0;
      for (size_t k = std::min(ids.size(), i + kIdsPerWord); k-- > i;) {
        packed = packed << kIdBits | static_cast<uint32_t>(ids[k]);
      }
      entry.ids[i / kIdsPerWord].store(packed, std::memory_order_release);
    }
    entry.state.store(writing | uint64_t{ids.size()} << kCountShift | described(key),
                      std::memory_order_release);
  }

  std::vector<Entry> entries_;
  int shift_;
};

}  // namespace zipage
