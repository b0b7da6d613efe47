#include "compress/stages/stages.h"

namespace zipage {
namespace {

class PlainStage final : public ScoreStage {
 public:
  PlainStage(KvPolicy policy, int row) : policy_(policy), row_(row) {}
  const char* name() const override { return to_string(policy_); }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    c.score = c.rows[static_cast<size_t>(row_)];
    c.backend->plain_score({c.ops, policy_, c.score}, *c.stream);
  }

 private:
  const KvPolicy policy_;
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_plain_stage(KvPolicy policy, int row) {
  return std::make_unique<PlainStage>(policy, row);
}

}  // namespace zipage
