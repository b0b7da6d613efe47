#include "compress/stages/stages.h"

namespace zipage {
namespace {

class PromptPeakStage final : public ScoreStage {
 public:
  PromptPeakStage(double half_life, int row)
      : half_life_(static_cast<float>(half_life)), row_(row) {}
  const char* name() const override { return "prompt peak"; }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    float* f = c.rows[static_cast<size_t>(row_)];
    c.backend->peak_update({c.peaks, c.ops.kv, c.ops.layer_begin, c.ops.num_layers,
                            c.model->attention_scale, half_life_, f, c.ops.capacity, c.workspace},
                           *c.stream);
    c.history = f;
  }

 private:
  const float half_life_;
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_prompt_peak_stage(double half_life, int row) {
  return std::make_unique<PromptPeakStage>(half_life, row);
}

}  // namespace zipage
