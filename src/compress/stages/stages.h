// The stages. `row` is the scratch row that a stage writes.
#pragma once

#include <memory>

#include "zipage/options.h"

#include "compress/score_stage.h"

namespace zipage {

// Alg. 1: attention = score of the last window.
std::unique_ptr<ScoreStage> make_attention_stage(int row);
// Alg. 2: attention, in place, with the history F; it becomes the new F.
std::unique_ptr<ScoreStage> make_global_stage(double decay, ScoreReduce reduce);
// Eq. 3: attention = its max pool.
std::unique_ptr<ScoreStage> make_pooling_stage(int width, bool only_first, int row);
// method.md 3.1.4.
std::unique_ptr<ScoreStage> make_redundancy_stage(const CompressionOptions& options, int row);
// method.md 3.2: the redundancy towards the centre of all keys.
std::unique_ptr<ScoreStage> make_center_stage(double temperature, int row);
// method.md 3.2: F = p of the last window, for jobs that had no F yet.
std::unique_ptr<ScoreStage> make_prompt_peak_stage(double half_life, int row);
// method.md 3.2: attention = F / sum(F).
std::unique_ptr<ScoreStage> make_history_stage(int row);
// Eq. 4 and method.md 3.1.5.
std::unique_ptr<ScoreStage> make_combine_stage(double weight, Combine combine, int row);
// Recency and random.
std::unique_ptr<ScoreStage> make_plain_stage(KvPolicy policy, int row);
// method.md 3.1.6.
std::unique_ptr<ScoreStage> make_protect_stage(int newest, int sinks, bool protect_prompt);

}  // namespace zipage
