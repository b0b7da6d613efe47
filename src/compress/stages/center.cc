#include "compress/stages/stages.h"

namespace zipage {
namespace {

class CenterStage final : public ScoreStage {
 public:
  CenterStage(double temperature, int row)
      : temperature_(static_cast<float>(temperature)), row_(row) {}
  const char* name() const override { return "center"; }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    c.redundancy = c.rows[static_cast<size_t>(row_)];
    c.backend->center_redundancy({c.ops, temperature_, c.model->rope_cos_sin, c.model->rotary_dim,
                                  c.redundancy, c.workspace},
                                 *c.stream);
  }

 private:
  const float temperature_;
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_center_stage(double temperature, int row) {
  return std::make_unique<CenterStage>(temperature, row);
}

}  // namespace zipage
