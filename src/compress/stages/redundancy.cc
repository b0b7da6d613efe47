#include "compress/stages/stages.h"

namespace zipage {
namespace {

class RedundancyStage final : public ScoreStage {
 public:
  RedundancyStage(const CompressionOptions& options, int row)
      : mode_(options.redundancy),
        threshold_(static_cast<float>(options.similarity_threshold)),
        temperature_(static_cast<float>(options.redundancy_temperature)),
        derotate_(options.derotate),
        row_(row) {}
  const char* name() const override { return to_string(mode_); }
  int highest_row() const override { return row_; }
  void run(ScoreContext& c) const override {
    c.redundancy = c.rows[static_cast<size_t>(row_)];
    c.backend->redundancy({c.ops, mode_, threshold_, temperature_, derotate_, c.model->rope_cos_sin,
                           c.model->rotary_dim, c.redundancy, c.workspace},
                          *c.stream);
  }

 private:
  const Redundancy mode_;
  const float threshold_;
  const float temperature_;
  const bool derotate_;
  const int row_;
};

}  // namespace

std::unique_ptr<ScoreStage> make_redundancy_stage(const CompressionOptions& options, int row) {
  return std::make_unique<RedundancyStage>(options, row);
}

}  // namespace zipage
