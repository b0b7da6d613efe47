#include "blocks/block_pool.h"

#include "base/check.h"

namespace zipage {

BlockPool::BlockPool(int32_t num_blocks) : nodes_(static_cast<size_t>(num_blocks) + 1) {
  nodes_.back().previous = nodes_.back().next = num_blocks;
  for (int32_t block = num_blocks - 1; block >= 0; --block) link(block);
}

size_t BlockPool::index(BlockId block) const {
  ZIPAGE_CHECK_GE(block.value(), 0);
  ZIPAGE_CHECK_LT(block.value(), num_blocks());
  return static_cast<size_t>(block.value());
}

void BlockPool::link(int32_t block) {
  const int32_t head = num_blocks();
  Node& self = nodes_[static_cast<size_t>(block)];
  const int32_t next = self.cached ? head : nodes_[static_cast<size_t>(head)].next;
  const int32_t previous = nodes_[static_cast<size_t>(next)].previous;
  self.next = next;
  self.previous = previous;
  nodes_[static_cast<size_t>(previous)].next = block;
  nodes_[static_cast<size_t>(next)].previous = block;
  ++num_free_;
  if (self.cached) ++num_cached_free_;
}

void BlockPool::unlink(int32_t block) {
  Node& self = nodes_[static_cast<size_t>(block)];
  nodes_[static_cast<size_t>(self.previous)].next = self.next;
  nodes_[static_cast<size_t>(self.next)].previous = self.previous;
  self.previous = self.next = -1;
  --num_free_;
  if (self.cached) --num_cached_free_;
}

BlockPool::Taken BlockPool::allocate() {
  ZIPAGE_CHECK_GT(num_free_, 0);
  const int32_t block = nodes_.back().next;
  unlink(block);
  Node& self = nodes_[static_cast<size_t>(block)];
  const Taken taken{BlockId(block), self.cached};
  self.cached = false;
  self.ref_count = 1;
  return taken;
}

void BlockPool::acquire(BlockId block) {
  Node& self = node(block);
  if (self.ref_count == 0) {
    ZIPAGE_CHECK(self.cached);
    unlink(block.value());
  }
  ++self.ref_count;
}

void BlockPool::release(BlockId block) {
  Node& self = node(block);
  ZIPAGE_CHECK_GT(self.ref_count, 0);
  if (--self.ref_count == 0) link(block.value());
}

void BlockPool::set_cached(BlockId block, bool cached) {
  Node& self = node(block);
  if (self.cached == cached) return;
  const bool is_free = self.ref_count == 0;
  if (is_free) unlink(block.value());
  self.cached = cached;
  if (is_free) link(block.value());
}

void BlockPool::check_invariants() const {
  int32_t count = 0, cached = 0;
  bool seen_cached = false;
  for (int32_t block = nodes_.back().next; block != num_blocks();) {
    const Node& self = nodes_[static_cast<size_t>(block)];
    ZIPAGE_CHECK_EQ(self.ref_count, 0);
    ZIPAGE_CHECK_EQ(nodes_[static_cast<size_t>(self.next)].previous, block);
    ZIPAGE_CHECK(self.cached || !seen_cached);
    seen_cached = self.cached;
    cached += self.cached ? 1 : 0;
    ++count;
    ZIPAGE_CHECK_LE(count, num_blocks());
    block = self.next;
  }
  ZIPAGE_CHECK_EQ(count, num_free_);
  ZIPAGE_CHECK_EQ(cached, num_cached_free_);
  int32_t unused = 0;
  for (int32_t i = 0; i < num_blocks(); ++i) {
    ZIPAGE_CHECK_GE(nodes_[static_cast<size_t>(i)].ref_count, 0);
    unused += nodes_[static_cast<size_t>(i)].ref_count == 0 ? 1 : 0;
  }
  ZIPAGE_CHECK_EQ(unused, num_free_);
}

}  // namespace zipage
