// IdPool: ids that are either free or taken, without reference counts. For compression slots and
// host blocks.
//
// Thread: the scheduler's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "blocks/ids.h"

namespace zipage {

// The ids [0, size). O(1), no allocation after construction. Thread: the owner's.
template <typename Id>
class IdPool {
 public:
  explicit IdPool(int32_t size) : taken_(static_cast<size_t>(size), false) {
    free_.reserve(static_cast<size_t>(size));
    for (int32_t i = size - 1; i >= 0; --i) free_.push_back(i);
  }

  int32_t size() const { return static_cast<int32_t>(taken_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  bool taken(Id id) const { return taken_.at(static_cast<size_t>(id.value())); }

  // The id given back last, or the lowest one. One must be free.
  Id allocate() {
    ZIPAGE_CHECK(!free_.empty());
    const int32_t id = free_.back();
    free_.pop_back();
    taken_[static_cast<size_t>(id)] = true;
    return Id(id);
  }
  void release(Id id) {
    ZIPAGE_CHECK(taken(id));
    taken_[static_cast<size_t>(id.value())] = false;
    free_.push_back(id.value());
  }

 private:
  std::vector<int32_t> free_;
  std::vector<bool> taken_;
};

using SlotPool = IdPool<SlotId>;
using HostBlockId = StrongId<struct HostBlockIdTag>;
// Swap space.
using HostBlockPool = IdPool<HostBlockId>;

}  // namespace zipage
