// The policies, each in the order of docs/method.md 3, whose sections, algorithms and equations the
// comments name. To add one: docs/howto/add-a-policy.md.
#include "compress/policies.h"

#include "base/check.h"

namespace zipage {
namespace {

// 3.2: peak attention, and redundancy as nearness to the centre of all keys.
float* score_peak(ScoreOps& op) {
  // F was updated while the request decoded. A prompt longer than the score cache has none yet.
  if (!op.has_f()) op.f_of_last_window();
  // S = F / sum(F).
  float* s = op.normalized_f();
  // R = softmax(u_i . mean_j(u_j) / tau).
  float* r = op.center_redundancy();
  // lambda*S - (1-lambda)*R.
  return op.combine(s, r);
}

// 3.1: the published policy.
float* score_paper(ScoreOps& op) {
  // 1. Attention score, Alg. 1.
  float* s = op.attention();
  // 2. Global score, Alg. 2: it is also the new F, before pooling.
  op.global(s);
  // 3. Pooling, Eq. 3.
  float* pooled = op.max_pool(s);
  // 4. Redundancy, Alg. 3.
  float* r = op.redundancy();
  // 5. Combination, Eq. 4.
  return op.combine(pooled, r);
}

// 3.3: step 1 alone (SnapKV, MorphKV).
float* score_attention(ScoreOps& op) { return op.attention(); }

// 3.3: steps 1, 3 and 4 (R-KV).
float* score_redundancy(ScoreOps& op) {
  float* pooled = op.max_pool(op.attention());
  float* r = op.redundancy();
  return op.combine(pooled, r);
}

// 3.3: steps 1, 2 and 3 (G-KV).
float* score_global(ScoreOps& op) {
  float* s = op.attention();
  op.global(s);
  float* pooled = op.max_pool(s);
  return op.combine(pooled, nullptr);
}

// 3.3: the newest entries; the first ones are protected as sinks (StreamingLLM).
float* score_recency(ScoreOps& op) { return op.recency(); }

// 3.3: what any policy must beat.
float* score_random(ScoreOps& op) { return op.random(); }

}  // namespace

float* score_entries(KvPolicy policy, ScoreOps& op) {
  switch (policy) {
    case KvPolicy::kPeak:
      return score_peak(op);
    case KvPolicy::kPaper:
      return score_paper(op);
    case KvPolicy::kAttention:
      return score_attention(op);
    case KvPolicy::kRedundancy:
      return score_redundancy(op);
    case KvPolicy::kGlobal:
      return score_global(op);
    case KvPolicy::kRecency:
      return score_recency(op);
    case KvPolicy::kRandom:
      return score_random(op);
  }
  check_failed(__FILE__, __LINE__, "unknown policy");
}

}  // namespace zipage
