// The list of stages that scores the entries of a policy's jobs (method.md 3.1 to 3.3).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zipage/options.h"

#include "compress/score_stage.h"

namespace zipage {

class Pipeline {
 public:
  // `options` are resolved; their kv_policy is the policy. without_history: peak's pipeline for
  // jobs that have no F yet.
  explicit Pipeline(const CompressionOptions& options, bool without_history = false);

  // Leaves context.score, and context.history where F is made anew.
  void run(ScoreContext& context) const;
  int num_rows() const;          // scratch rows that the stages write
  std::string describe() const;  // "attention > global > pooling > lightning > combine > protect"

 private:
  std::vector<std::unique_ptr<ScoreStage>> stages_;
};

}  // namespace zipage
