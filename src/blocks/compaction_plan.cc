#include "blocks/compaction_plan.h"

#include "base/check.h"

namespace zipage {

bool is_replaced(const BlockPool& pool, const CompactionPlan& plan, BlockId block) {
  return pool.ref_count(block) > 1 || (plan.keeps_cached && pool.cached(block));
}

CompactionPlan plan_compaction(const BlockPool& pool,
                               std::span<const BlockId> table,
                               int32_t num_targets,
                               int32_t num_spare) {
  ZIPAGE_CHECK_GE(static_cast<int32_t>(table.size()), num_targets);
  int32_t shared = 0, cached_alone = 0;
  for (const BlockId block : table.first(static_cast<size_t>(num_targets))) {
    if (pool.ref_count(block) > 1) {
      ++shared;
    } else if (pool.cached(block)) {
      ++cached_alone;
    }
  }
  CompactionPlan plan;
  plan.keeps_cached = cached_alone > 0 && shared + cached_alone <= num_spare;
  plan.num_new = shared + (plan.keeps_cached ? cached_alone : 0);
  return plan;
}

}  // namespace zipage
