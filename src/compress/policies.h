// How each policy scores the entries of a cache: one function a policy, in policies.cc. What else
// the engine knows of a policy is its row of traits in zipage/kv_policy.h.
#pragma once

#include "zipage/kv_policy.h"

#include "compress/score_ops.h"

namespace zipage {

// Enqueues the ops that score the entries of op's jobs, as `policy` does, and returns the row of
// scores: larger is kept. op.new_f() is the F that the kept entries take along. Protection, top-k
// and compaction follow, the same for every policy (Compressor::run).
float* score_entries(KvPolicy policy, ScoreOps& op);

}  // namespace zipage
