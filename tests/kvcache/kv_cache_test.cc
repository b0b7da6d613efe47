#include "kvcache/kv_cache.h"

#include <cstring>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"

namespace zipage {
namespace {

class KvCacheTest : public testing::Test {
 protected:
  KvCacheTest() {
    config_.num_layers = 3;
    config_.num_q_heads = 4;
    config_.num_kv_heads = 2;
    config_.head_dim = 16;
    config_.block_size = 8;
    config_.window_size = 4;
    config_.max_blocks_per_seq = 3;
    config_.max_num_seqs = 4;
    config_.dtype = DType::kBF16;
    config_.contents = {.queries = true, .scores = true, .positions = true};
    config_.swap_space_bytes = 9 * kv_block_bytes(config_) + 4 * kv_slot_bytes(config_);
    BackendOptions options;
    options.num_threads = 1;
    backend_ = create_cpu_backend(options);
    stream_ = backend_->create_stream(false);
  }

  MemoryPlan plan() const { return plan_memory(config_, 200 * kv_block_bytes(config_), 0); }

  // Writes a byte that names the place into every byte of a block and a slot.
  void mark(const PagedKvView& view, int block, int slot, int salt) {
    const size_t page = kv_block_bytes(config_) / 2 / 3;
    for (int l = 0; l < 3; ++l) {
      std::memset(view.layers[l].k + static_cast<size_t>(block) * page, salt + l, page);
      std::memset(view.layers[l].v + static_cast<size_t>(block) * page, salt + 50 + l, page);
      if (slot < 0) continue;
      std::memset(view.layers[l].queries + slot * query_bytes(), salt + 100 + l, query_bytes());
      std::memset(view.layers[l].scores + slot * entries(), salt + 150 + l, entries() * 4);
      std::memset(view.layers[l].positions + slot * entries(), salt + 200 + l, entries() * 4);
    }
  }
  bool is_marked(const PagedKvView& view, int block, int slot, int salt) {
    const size_t page = kv_block_bytes(config_) / 2 / 3;
    const auto all = [](const void* at, size_t bytes, int value) {
      const auto* p = static_cast<const unsigned char*>(at);
      for (size_t i = 0; i < bytes; ++i) {
        if (p[i] != static_cast<unsigned char>(value)) return false;
      }
      return true;
    };
    bool ok = true;
    for (int l = 0; l < 3; ++l) {
      ok &= all(view.layers[l].k + static_cast<size_t>(block) * page, page, salt + l);
      ok &= all(view.layers[l].v + static_cast<size_t>(block) * page, page, salt + 50 + l);
      if (slot < 0) continue;
      ok &= all(view.layers[l].queries + slot * query_bytes(), query_bytes(), salt + 100 + l);
      ok &= all(view.layers[l].scores + slot * entries(), entries() * 4, salt + 150 + l);
      ok &= all(view.layers[l].positions + slot * entries(), entries() * 4, salt + 200 + l);
    }
    return ok;
  }
  size_t query_bytes() const { return 4 * 4 * 16 * 4; }
  size_t entries() const { return 2 * 24; }

  KvCacheConfig config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(KvCacheTest, TheViewCoversThePlanAndPlacesDoNotOverlap) {
  const MemoryPlan p = plan();
  KvCache cache(*backend_, config_, p);
  const PagedKvView& view = cache.view();
  EXPECT_EQ(view.num_blocks, p.num_blocks);
  EXPECT_EQ(view.num_slots, 4);
  EXPECT_EQ(view.score_capacity, 24);
  EXPECT_EQ(cache.device_bytes(), p.total_bytes);
  for (int block = 0; block < p.num_blocks; ++block) mark(view, block, block % 4, block % 4);
  for (int block = 0; block < p.num_blocks; ++block) {
    EXPECT_TRUE(is_marked(view, block, block % 4, block % 4)) << block;
  }
}

TEST_F(KvCacheTest, OnlyWhatThePoliciesNeedIsThere) {
  config_.contents = {.queries = false, .scores = false, .positions = true};
  KvCache cache(*backend_, config_, plan());
  EXPECT_EQ(cache.view().layers[0].queries, nullptr);
  EXPECT_EQ(cache.view().layers[0].scores, nullptr);
  EXPECT_NE(cache.view().layers[0].positions, nullptr);
  config_.max_blocks_per_seq = 0;
  KvCache full(*backend_, config_, plan());
  EXPECT_EQ(full.view().num_slots, 0);
  EXPECT_EQ(full.view().layers[2].positions, nullptr);
}

TEST_F(KvCacheTest, ASequenceComesBackToOtherBlocksAndAnotherSlot) {
  KvCache cache(*backend_, config_, plan());
  const PagedKvView& view = cache.view();
  mark(view, 5, 1, 1);
  mark(view, 9, -1, 7);
  const std::vector<BlockId> from = {BlockId(5), BlockId(9)};
  const std::vector<int32_t> host = {3, 0};
  cache.swap_out({.sequence = 77, .slot = SlotId(1), .device_blocks = from, .host_blocks = host},
                 *stream_);
  EXPECT_EQ(cache.num_free_host_slots(), 3);
  mark(view, 5, 1, 30);
  mark(view, 9, -1, 31);
  const std::vector<BlockId> to = {BlockId(2), BlockId(5)};
  cache.swap_in({.sequence = 77, .slot = SlotId(3), .device_blocks = to, .host_blocks = host},
                *stream_);
  EXPECT_TRUE(is_marked(view, 2, 3, 1));
  EXPECT_TRUE(is_marked(view, 5, -1, 7));
  EXPECT_TRUE(is_marked(view, 9, -1, 31));
  EXPECT_EQ(cache.num_free_host_slots(), 4);
}

TEST_F(KvCacheTest, HostSlotsAreReturnedAndNeverMoreThanPlanned) {
  KvCache cache(*backend_, config_, plan());
  const PagedKvView& view = cache.view();
  const std::vector<BlockId> block = {BlockId(0)};
  const auto move = [&](uint64_t sequence, int slot, int host_block) {
    static std::vector<int32_t> host(1);
    host[0] = host_block;
    return SwapMove{
        .sequence = sequence, .slot = SlotId(slot), .device_blocks = block, .host_blocks = host};
  };
  // Four sequences with a slot, as many as the plan has host slots, and one without.
  for (int i = 0; i < 4; ++i) {
    mark(view, 0, i % 4, 3 * i);
    cache.swap_out(move(static_cast<uint64_t>(i), i % 4, i), *stream_);
  }
  cache.swap_out(move(9, -1, 6), *stream_);
  EXPECT_EQ(cache.num_free_host_slots(), 0);
  EXPECT_ANY_THROW(cache.swap_out(move(10, 1, 7), *stream_));
  for (int i = 3; i >= 0; --i) {
    cache.swap_in(move(static_cast<uint64_t>(i), 2, i), *stream_);
    EXPECT_TRUE(is_marked(view, 0, 2, 3 * i)) << i;
  }
  EXPECT_EQ(cache.num_free_host_slots(), 4);
  cache.swap_out(move(1, 1, 0), *stream_);
  cache.drop_swapped(1);
  cache.drop_swapped(1);
  cache.drop_swapped(99);
  EXPECT_EQ(cache.num_free_host_slots(), 4);
}

}  // namespace
}  // namespace zipage
