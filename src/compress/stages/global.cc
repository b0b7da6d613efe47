#include "compress/stages/stages.h"

namespace zipage {
namespace {

class GlobalStage final : public ScoreStage {
 public:
  GlobalStage(double decay, ScoreReduce reduce)
      : decay_(static_cast<float>(decay)), reduce_(reduce) {}
  const char* name() const override { return "global"; }
  void run(ScoreContext& c) const override {
    c.backend->global_score({c.ops, decay_, reduce_, c.attention}, *c.stream);
    c.history = c.attention;  // before pooling
  }

 private:
  const float decay_;
  const ScoreReduce reduce_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_global_stage(double decay, ScoreReduce reduce) {
  return std::make_unique<GlobalStage>(decay, reduce);
}

}  // namespace zipage
