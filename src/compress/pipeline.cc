#include "compress/pipeline.h"

#include <algorithm>

#include "compress/stages/stages.h"

namespace zipage {

Pipeline::Pipeline(const CompressionOptions& o, bool without_history) {
  const auto add = [this](std::unique_ptr<ScoreStage> stage) {
    stages_.push_back(std::move(stage));
  };
  // Row 0 holds S, which under `paper` and `global` is also the new F and must survive the later
  // stages.
  const auto add_attention = [&] { add(make_attention_stage(0)); };
  const auto add_global = [&] { add(make_global_stage(o.score_decay, o.score_reduce)); };
  const auto add_pooling = [&] {
    if (o.pooling == Pooling::kNever) return;
    add(make_pooling_stage(o.pooling_width, o.pooling == Pooling::kFirst, 1));
  };
  const auto add_redundancy = [&] { add(make_redundancy_stage(o, 2)); };
  const auto add_combine = [&](int row) {
    add(make_combine_stage(*o.score_weight, o.combine, row));
  };

  switch (o.kv_policy) {
    case KvPolicy::kPeak:
      if (without_history) add(make_prompt_peak_stage(o.attention_half_life, 2));
      add(make_history_stage(0));
      add(make_center_stage(o.redundancy_temperature, 1));
      add_combine(0);
      break;
    case KvPolicy::kPaper:
      add_attention();
      add_global();
      add_pooling();
      add_redundancy();
      add_combine(1);
      break;
    case KvPolicy::kAttention:
      add_attention();
      add_combine(0);
      break;
    case KvPolicy::kRedundancy:
      add_attention();
      add_pooling();
      add_redundancy();
      add_combine(1);
      break;
    case KvPolicy::kGlobal:
      add_attention();
      add_global();
      add_pooling();
      add_combine(1);
      break;
    case KvPolicy::kRecency:
    case KvPolicy::kRandom:
      add(make_plain_stage(o.kv_policy, 0));
      break;
  }
  add(make_protect_stage(std::max(o.window_size, *o.protect_newest), o.sink_tokens,
                         o.protect_prompt));
}

void Pipeline::run(ScoreContext& context) const {
  for (const auto& stage : stages_) stage->run(context);
}

int Pipeline::num_rows() const {
  int highest = -1;
  for (const auto& stage : stages_) highest = std::max(highest, stage->highest_row());
  return highest + 1;
}

std::string Pipeline::describe() const {
  std::string text;
  for (const auto& stage : stages_) {
    if (!text.empty()) text += " > ";
    text += stage->name();
  }
  return text;
}

}  // namespace zipage
