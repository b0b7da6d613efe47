#include "compress/stages/stages.h"

namespace zipage {
namespace {

class AttentionStage final : public ScoreStage {
 public:
  explicit AttentionStage(int row) : row_(row) {}
  const char* name() const override { return "attention"; }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    c.attention = c.rows[static_cast<size_t>(row_)];
    c.backend->attention_score({c.ops, c.model->attention_scale, c.attention, c.workspace},
                               *c.stream);
  }

 private:
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_attention_stage(int row) {
  return std::make_unique<AttentionStage>(row);
}

}  // namespace zipage
