#include "compress/stages/stages.h"

namespace zipage {
namespace {

class HistoryStage final : public ScoreStage {
 public:
  explicit HistoryStage(int row) : row_(row) {}
  const char* name() const override { return "history"; }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    c.attention = c.rows[static_cast<size_t>(row_)];
    c.backend->normalized_history({c.ops, c.history, c.attention}, *c.stream);
  }

 private:
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_history_stage(int row) {
  return std::make_unique<HistoryStage>(row);
}

}  // namespace zipage
