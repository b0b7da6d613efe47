#include "tokenizer/vocab.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace zipage {

uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  const auto mix = [](uint64_t value) {
    value *= kMultiplier;
    return value ^ (value >> 32);
  };
  const auto load = [](const char* data, auto word) {
    std::memcpy(&word, data, sizeof word);
    return uint64_t{word};
  };
  const size_t size = text.size();
  const char* data = text.data();
  uint64_t hash = size;
  uint64_t tail = 0;  // the last bytes, some of them a second time
  if (size >= 8) {
    for (const char* const last = data + size - 8; data < last; data += 8)
      hash = mix(hash ^ load(data, uint64_t{}));
    tail = load(text.data() + size - 8, uint64_t{});
  } else if (size >= 4) {
    tail = load(data, uint32_t{}) | load(data + size - 4, uint32_t{}) << 32;
  } else if (size > 0) {
    tail = load(data, uint8_t{}) | load(data + size / 2, uint8_t{}) << 8 |
           load(data + size - 1, uint8_t{}) << 16;
  }
  return mix(mix(hash ^ tail));
}

StringIndex::StringIndex(size_t num_strings) {
  entries_.resize(std::bit_ceil(2 * num_strings + 16));
  mask_ = entries_.size() - 1;
}

std::optional<int32_t> StringIndex::insert(std::string_view text, int32_t id) {
  if (2 * (size_ + 1) > entries_.size()) grow();
  const uint64_t hash = hash_bytes(text);
  size_t i = hash & mask_;
  for (; entries_[i].id >= 0; i = (i + 1) & mask_) {
    if (is(entries_[i], text, hash)) return entries_[i].id;
  }
  entries_[i] = {static_cast<uint32_t>(hash >> 32), id, static_cast<uint32_t>(arena_.size()),
                 static_cast<uint32_t>(text.size())};
  arena_.append(text);
  ++size_;
  max_length_ = std::max(max_length_, text.size());
  return std::nullopt;
}

void StringIndex::grow() {
  std::vector<Entry> old = std::move(entries_);
  entries_.assign(2 * old.size(), Entry{});
  mask_ = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.id < 0) continue;
    size_t i = hash_bytes(text_of(entry)) & mask_;
    while (entries_[i].id >= 0) i = (i + 1) & mask_;
    entries_[i] = entry;
  }
}

void StringTable::assign(const std::vector<std::string>& strings) {
  size_t total = 0;
  for (const std::string& text : strings) total += text.size();
  arena_.clear();
  arena_.reserve(total);
  ends_.assign(1, 0);
  ends_.reserve(strings.size() + 1);
  for (const std::string& text : strings) {
    arena_.append(text);
    ends_.push_back(static_cast<uint32_t>(arena_.size()));
  }
}

}  // namespace zipage
