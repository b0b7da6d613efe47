#include "kvcache/kv_cache.h"

#include "base/check.h"

namespace zipage {

KvCache::KvCache(Backend& backend, const KvCacheConfig& config, const MemoryPlan& plan)
    : backend_(backend), config_(config), plan_(plan) {
  const auto layers = static_cast<size_t>(config.num_layers);
  const size_t layer_pages = plan.block_bytes / 2 / layers * static_cast<size_t>(plan.num_blocks);
  const auto slots = static_cast<size_t>(plan.num_slots);
  const size_t layer_queries =
      slots * static_cast<size_t>(config.window_size * config.num_q_heads) *
      static_cast<size_t>(dtype_bytes(config.query_dtype, config.head_dim));
  const size_t layer_entries =
      slots * static_cast<size_t>(config.num_kv_heads) * static_cast<size_t>(plan.score_capacity);
  const auto take = [&](size_t bytes) {
    device_bytes_ += bytes;
    return backend.allocate(bytes, MemorySpace::kDevice);
  };
  k_ = take(layers * layer_pages);
  v_ = take(layers * layer_pages);
  if (slots > 0 && config.contents.queries) queries_ = take(layers * layer_queries);
  if (slots > 0 && config.contents.scores) scores_ = take(layers * layer_entries * sizeof(float));
  if (slots > 0 && config.contents.positions) {
    positions_ = take(layers * layer_entries * sizeof(int32_t));
  }

  layers_.resize(layers);
  for (size_t l = 0; l < layers; ++l) {
    LayerKvView& layer = layers_[l];
    layer.k = k_.data() + l * layer_pages;
    layer.v = v_.data() + l * layer_pages;
    if (queries_.bytes() > 0) layer.queries = queries_.data() + l * layer_queries;
    if (scores_.bytes() > 0) layer.scores = scores_.as<float>() + l * layer_entries;
    if (positions_.bytes() > 0) layer.positions = positions_.as<int32_t>() + l * layer_entries;
  }
  view_ = {.dtype = config.dtype,
           .query_dtype = config.query_dtype,
           .num_layers = config.num_layers,
           .num_blocks = plan.num_blocks,
           .block_size = config.block_size,
           .num_kv_heads = config.num_kv_heads,
           .num_q_heads = config.num_q_heads,
           .head_dim = config.head_dim,
           .num_slots = plan.num_slots,
           .window_size = config.window_size,
           .score_capacity = plan.score_capacity,
           .layers = layers_.data()};

  if (plan.num_host_blocks > 0) {
    host_blocks_ = backend.allocate(static_cast<size_t>(plan.num_host_blocks) * plan.block_bytes,
                                    MemorySpace::kHost);
  }
  if (plan.num_host_slots > 0) {
    host_slots_ = backend.allocate(static_cast<size_t>(plan.num_host_slots) * plan.slot_bytes,
                                   MemorySpace::kHost);
    for (int32_t i = plan.num_host_slots; i > 0; --i) free_host_slots_.push_back(i - 1);
    swapped_slots_.reserve(static_cast<size_t>(plan.num_host_slots));
  }
}

void KvCache::swap_out(const SwapMove& move, Stream& stream) {
  copy_blocks(move, Direction::kOut, stream);
  if (!move.slot.valid()) return;
  ZIPAGE_CHECK(!swapped_slots_.contains(move.sequence));
  ZIPAGE_CHECK(!free_host_slots_.empty());
  const int32_t host_slot = free_host_slots_.back();
  free_host_slots_.pop_back();
  swapped_slots_.emplace(move.sequence, host_slot);
  copy_slot(move.slot, host_slot, Direction::kOut, stream);
}

void KvCache::swap_in(const SwapMove& move, Stream& stream) {
  copy_blocks(move, Direction::kIn, stream);
  const auto kept = swapped_slots_.find(move.sequence);
  if (kept == swapped_slots_.end()) return;
  if (move.slot.valid()) copy_slot(move.slot, kept->second, Direction::kIn, stream);
  drop_swapped(move.sequence);
}

void KvCache::drop_swapped(SequenceId sequence) {
  const auto kept = swapped_slots_.find(sequence);
  if (kept == swapped_slots_.end()) return;
  free_host_slots_.push_back(kept->second);
  swapped_slots_.erase(kept);
}

// A host block holds [num_layers, 2 (K, V), num_kv_heads, block_size, head_dim].
void KvCache::copy_blocks(const SwapMove& move, Direction direction, Stream& stream) {
  ZIPAGE_CHECK_EQ(move.device_blocks.size(), move.host_blocks.size());
  const size_t page = plan_.block_bytes / 2 / layers_.size();
  for (size_t i = 0; i < move.device_blocks.size(); ++i) {
    const int32_t block = move.device_blocks[i].value();
    const int32_t host_block = move.host_blocks[i];
    ZIPAGE_CHECK(block >= 0 && block < plan_.num_blocks);
    ZIPAGE_CHECK(host_block >= 0 && host_block < plan_.num_host_blocks);
    std::byte* host = host_blocks_.data() + static_cast<size_t>(host_block) * plan_.block_bytes;
    for (const LayerKvView& layer : layers_) {
      for (std::byte* pages : {layer.k, layer.v}) {
        std::byte* device = pages + static_cast<size_t>(block) * page;
        if (direction == Direction::kOut) {
          backend_.copy(host, device, page, stream);
        } else {
          backend_.copy(device, host, page, stream);
        }
        host += page;
      }
    }
  }
}

// A host slot holds, layer by layer, what LayerKvView holds of a slot: queries, F, positions.
void KvCache::copy_slot(SlotId slot, int32_t host_slot, Direction direction, Stream& stream) {
  ZIPAGE_CHECK(slot.valid() && slot.value() < plan_.num_slots);
  const auto index = static_cast<size_t>(slot.value());
  std::byte* host = host_slots_.data() + static_cast<size_t>(host_slot) * plan_.slot_bytes;
  const auto move = [&](std::byte* base, size_t bytes) {
    if (base == nullptr) return;
    std::byte* device = base + index * bytes;
    if (direction == Direction::kOut) {
      backend_.copy(host, device, bytes, stream);
    } else {
      backend_.copy(device, host, bytes, stream);
    }
    host += bytes;
  };
  const size_t queries = static_cast<size_t>(config_.window_size * config_.num_q_heads) *
                         static_cast<size_t>(dtype_bytes(config_.query_dtype, config_.head_dim));
  const size_t entries =
      static_cast<size_t>(config_.num_kv_heads) * static_cast<size_t>(plan_.score_capacity) * 4;
  for (const LayerKvView& layer : layers_) {
    move(layer.queries, queries);
    move(reinterpret_cast<std::byte*>(layer.scores), entries);
    move(reinterpret_cast<std::byte*>(layer.positions), entries);
  }
}

}  // namespace zipage
