// Prompt blocks that sequences share (method.md 4).
#include <algorithm>

#include "schedule/scheduler_impl.h"

namespace zipage {
namespace {

PrefixIndex::Key key_of(const Sequence& s, int32_t block, PrefixIndex::Handle parent) {
  const size_t width = static_cast<size_t>(s.rules.block_size);
  const size_t i = static_cast<size_t>(block);
  return {s.hashes[i], std::span<const int32_t>(s.spec.prompt_tokens()).subspan(i * width, width),
          s.spec.hash_keys, parent};
}

}  // namespace

void SchedulerImpl::find_prefix(Sequence& s) {
  // Hashed when its turn comes: a queue may be long.
  if (options_.enable_prefix_caching && s.hashes.empty())
    s.hashes = prefix_hashes(s.spec.prompt_tokens(), options_.block_size, s.spec.hash_keys);
  if (!s.spec.reads_prefix_cache) return;
  // What is computed whatever the cache holds: the queries a policy reads, and something to sample
  // from.
  const int32_t kept_back =
      std::max(s.rules.uncached_prompt, s.num_tokens > s.rules.prompt_length ? 0 : 1);
  const int32_t most = std::min((s.rules.prompt_length - kept_back) / options_.block_size,
                                static_cast<int32_t>(s.hashes.size()));
  for (int32_t i = 0; i < most; ++i) {
    const PrefixIndex::Handle hit =
        prefixes_.find(key_of(s, i, i == 0 ? PrefixIndex::Handle() : hits_.back()));
    if (!hit.valid()) return;
    hits_.push_back(hit);
  }
}

void SchedulerImpl::publish_prompt(Sequence& s) {
  const int32_t num_full =
      std::min(s.kv_length / options_.block_size, static_cast<int32_t>(s.hashes.size()));
  while (s.num_published < num_full) {
    const BlockId block = s.table[static_cast<size_t>(s.num_published)];
    BlockId replaced;
    s.published = prefixes_.publish(block, key_of(s, s.num_published, s.published), &replaced);
    if (replaced.valid()) blocks_.set_cached(replaced, false);
    if (!s.published.valid()) {
      // Its predecessors are gone: not worth the trouble.
      s.num_published = static_cast<int32_t>(s.hashes.size());
      return;
    }
    if (s.published.block == block) blocks_.set_cached(block, true);
    ++s.num_published;
  }
}

BlockId SchedulerImpl::allocate_block() {
  const BlockPool::Taken taken = blocks_.allocate();
  if (taken.was_cached) prefixes_.prune(taken.block);
  return taken.block;
}

void SchedulerImpl::release_blocks(std::span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) blocks_.release(blocks[i]);
}

void SchedulerImpl::unpublish(BlockId block) {
  if (!blocks_.cached(block)) return;
  prefixes_.prune(block);
  blocks_.set_cached(block, false);
}

void SchedulerImpl::reset_prefix_cache() {
  for (int32_t i = 0; i < options_.num_blocks; ++i) unpublish(BlockId(i));
}

}  // namespace zipage
