#include "compress/stages/stages.h"

namespace zipage {
namespace {

class PoolingStage final : public ScoreStage {
 public:
  PoolingStage(int width, bool only_first, int row)
      : width_(width), only_first_(only_first), row_(row) {}
  const char* name() const override { return "pooling"; }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    float* out = c.rows[static_cast<size_t>(row_)];
    c.backend->max_pool({c.ops, width_, only_first_, c.attention, out}, *c.stream);
    c.attention = out;
  }

 private:
  const int width_;
  const bool only_first_;
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_pooling_stage(int width, bool only_first, int row) {
  return std::make_unique<PoolingStage>(width, only_first, row);
}

}  // namespace zipage
