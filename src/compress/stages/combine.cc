#include "compress/stages/stages.h"

namespace zipage {
namespace {

class CombineStage final : public ScoreStage {
 public:
  CombineStage(double weight, Combine combine, int row)
      : weight_(static_cast<float>(weight)), combine_(combine), row_(row) {}
  const char* name() const override { return "combine"; }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    c.score = c.rows[static_cast<size_t>(row_)];
    if (c.redundancy == nullptr && c.attention == c.score) return;  // there already
    c.backend->combine({c.ops, combine_, weight_, c.attention, c.redundancy, c.score}, *c.stream);
  }

 private:
  const float weight_;
  const Combine combine_;
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_combine_stage(double weight, Combine combine, int row) {
  return std::make_unique<CombineStage>(weight, combine, row);
}

}  // namespace zipage
