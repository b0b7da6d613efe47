#include "blocks/prefix_index.h"

#define XXH_INLINE_ALL
#include <algorithm>
#include <bit>
#include <xxhash.h>

#include "base/check.h"

namespace zipage {

std::vector<uint64_t> prefix_hashes(std::span<const int32_t> tokens,
                                    int32_t block_size,
                                    std::span<const std::string> keys) {
  uint64_t hash = 0;
  for (const std::string& key : keys) hash = XXH3_64bits_withSeed(key.data(), key.size(), hash + 1);
  const size_t width = static_cast<size_t>(block_size);
  std::vector<uint64_t> hashes(tokens.size() / width);
  for (size_t i = 0; i < hashes.size(); ++i) {
    hash = XXH3_64bits_withSeed(tokens.data() + i * width, width * sizeof(int32_t), hash);
    hashes[i] = hash;
  }
  return hashes;
}

PrefixIndex::PrefixIndex(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      entries_(static_cast<size_t>(num_blocks)),
      tokens_(static_cast<size_t>(num_blocks) * static_cast<size_t>(block_size)),
      table_(std::bit_ceil(2 * static_cast<size_t>(num_blocks) + 2), -1),
      mask_(table_.size() - 1) {}

size_t PrefixIndex::place(uint64_t hash) const {
  size_t at = home(hash);
  while (table_[at] >= 0 && entry(BlockId(table_[at])).hash != hash) at = (at + 1) & mask_;
  return at;
}

bool PrefixIndex::equal(BlockId block, const Key& key) const {
  const Entry& e = entry(block);
  if (e.hash != key.hash || e.parent != key.parent) return false;
  if (!key.parent.valid() &&
      !std::equal(e.keys.begin(), e.keys.end(), key.keys.begin(), key.keys.end()))
    return false;
  const auto begin = tokens_.begin() + static_cast<ptrdiff_t>(block.value()) * block_size_;
  return std::equal(key.tokens.begin(), key.tokens.end(), begin);
}

PrefixIndex::Handle PrefixIndex::find(const Key& key) const {
  ZIPAGE_CHECK_EQ(key.tokens.size(), static_cast<size_t>(block_size_));
  const int32_t block = table_[place(key.hash)];
  if (block < 0 || !equal(BlockId(block), key)) return Handle();
  return {BlockId(block), entry(BlockId(block)).serial};
}

PrefixIndex::Handle PrefixIndex::publish(BlockId block, const Key& key, BlockId* replaced) {
  ZIPAGE_CHECK_EQ(key.tokens.size(), static_cast<size_t>(block_size_));
  ZIPAGE_CHECK(!contains(block));
  *replaced = BlockId();
  if (key.parent.valid() && !exists(key.parent)) return Handle();
  size_t at = place(key.hash);
  if (table_[at] >= 0) {
    const BlockId present(table_[at]);
    const Entry& e = entry(present);
    if (equal(present, key)) return {present, e.serial};
    if (!e.parent.valid() || exists(e.parent)) return Handle();
    prune(present);
    *replaced = present;
    at = place(key.hash);
  }
  table_[at] = block.value();
  Entry& e = entry(block);
  e.hash = key.hash;
  e.serial = next_serial_++;
  e.parent = key.parent;
  e.keys.clear();
  if (!key.parent.valid()) e.keys.assign(key.keys.begin(), key.keys.end());
  std::copy(key.tokens.begin(), key.tokens.end(),
            tokens_.begin() + static_cast<ptrdiff_t>(block.value()) * block_size_);
  ++size_;
  return {block, e.serial};
}

void PrefixIndex::prune(BlockId block) {
  if (!contains(block)) return;
  size_t gap = place(entry(block).hash);
  ZIPAGE_CHECK_EQ(table_[gap], block.value());
  entry(block).serial = 0;
  entry(block).keys.clear();
  --size_;
  // Closes the gap: an entry moves into it unless its home lies behind the gap.
  for (size_t at = (gap + 1) & mask_; table_[at] >= 0; at = (at + 1) & mask_) {
    const size_t distance_home = (at - home(entry(BlockId(table_[at])).hash)) & mask_;
    if (distance_home >= ((at - gap) & mask_)) {
      table_[gap] = table_[at];
      gap = at;
    }
  }
  table_[gap] = -1;
}

void PrefixIndex::check_invariants() const {
  int32_t in_table = 0, in_entries = 0;
  for (const int32_t block : table_) {
    if (block < 0) continue;
    ++in_table;
    ZIPAGE_CHECK(contains(BlockId(block)));
    ZIPAGE_CHECK_EQ(table_[place(entry(BlockId(block)).hash)], block);
  }
  for (const Entry& e : entries_) in_entries += e.serial != 0 ? 1 : 0;
  ZIPAGE_CHECK_EQ(in_table, size_);
  ZIPAGE_CHECK_EQ(in_entries, size_);
}

}  // namespace zipage
