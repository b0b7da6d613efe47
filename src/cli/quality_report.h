// Reports of `zipage eval` as points of a curve, and their picture.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace zipage::cli {

// One setting of an evaluation.
struct QualityPoint {
  std::string model;   // "" in reports of older versions
  std::string policy;  // "" with full KV
  int64_t budget = 0;  // 0: full KV
  double pass = 0;     // [0, 1]
  int64_t problems = 0;
  double tokens_per_second = 0;
};

// The settings in a file that `zipage eval --json` wrote, partial ones left out. Throws Error
// naming file and field.
std::vector<QualityPoint> read_quality_report(const std::string& path);

// An SVG of two panels: pass@1 by budget, and pass@1 by output tokens a second; a line for each
// policy. Of two points of one policy and budget the later is drawn. `points` is not empty.
std::string draw_quality(const std::vector<QualityPoint>& points);

}  // namespace zipage::cli
