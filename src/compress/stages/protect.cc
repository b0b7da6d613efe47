#include "compress/stages/stages.h"

namespace zipage {
namespace {

class ProtectStage final : public ScoreStage {
 public:
  ProtectStage(int newest, int sinks, bool protect_prompt)
      : newest_(newest), sinks_(sinks), protect_prompt_(protect_prompt) {}
  const char* name() const override { return "protect"; }
  void run(ScoreContext& c) const override {
    c.backend->protect({c.ops, newest_, sinks_, protect_prompt_, c.score}, *c.stream);
  }

 private:
  const int newest_;
  const int sinks_;
  const bool protect_prompt_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_protect_stage(int newest, int sinks, bool protect_prompt) {
  return std::make_unique<ProtectStage>(newest, sinks, protect_prompt);
}

}  // namespace zipage
