// The picture of an evaluation: plain SVG, no style sheets, so that every viewer draws it alike.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "zipage/options.h"

#include "cli/quality_report.h"

namespace zipage::cli {
namespace {

constexpr double kWidth = 960, kHeight = 430, kTop = 58, kBottom = 330;
constexpr const char* kInk = "#222222";
constexpr const char* kGrid = "#dddddd";

struct Style {
  const char* color;
  PlotMarker marker;
};

constexpr Style kFull = {"#555555", PlotMarker::kDiamond};

Style style_of(const std::string& policy) {
  const auto known = parse_kv_policy(policy);
  // A report of another version may name others.
  if (!known.ok()) return {kInk, PlotMarker::kCircle};
  const KvPolicyTraits& traits = traits_of(known.value());
  return {traits.plot_color, traits.plot_marker};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';
    } else {
      out += c;
    }
  }
  return out;
}

class Svg {
 public:
  void line(double x1, double y1, double x2, double y2, const char* color, const char* more = "") {
    body_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" {}/>\n", x1,
        y1, x2, y2, color, more);
  }
  void text(double x, double y, const std::string& text, const char* more = "") {
    body_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(text));
  }
  void path(const std::vector<std::array<double, 2>>& points, const char* color) {
    std::string list;
    for (const auto& [x, y] : points) list += fmt::format("{:.1f},{:.1f} ", x, y);
    body_ += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", list, color);
  }
  void mark(double x, double y, const Style& style) {
    constexpr double r = 5;
    if (style.marker == PlotMarker::kCircle) {
      body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y, r,
                           style.color);
      return;
    }
    // Corners around the middle, for the markers after the circle.
    static const std::vector<std::array<double, 2>> kCorners[] = {
        {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}},
        {{0, -1.2}, {1.2, 1}, {-1.2, 1}},
        {{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}},
        {{0, 1.2}, {1.2, -1}, {-1.2, -1}},
        {{-0.5, -1.3}, {0.5, -1.3}, {0.5, 1.3}, {-0.5, 1.3}}};
    std::string list;
    for (const auto& [dx, dy] : kCorners[static_cast<size_t>(style.marker) - 1])
      list += fmt::format("{:.1f},{:.1f} ", x + r * dx, y + r * dy);
    body_ += fmt::format("<polygon points=\"{}\" fill=\"{}\"/>\n", list, style.color);
  }
  std::string finish() const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
               "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"13\" "
               "fill=\"{2}\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
               kWidth, kHeight, kInk) +
           body_ + "</svg>\n";
  }

 private:
  std::string body_;
};

// A range of values and where it lies on the page.
struct Axis {
  double low = 0, high = 1, begin = 0, end = 0;  // low at begin
  double at(double value) const {
    return begin + (value - low) / std::max(high - low, 1e-9) * (end - begin);
  }
};

// 1, 2 or 5 times a power of ten, for about five ticks.
double tick_step(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= 6) return factor * power;
  }
  return 10 * power;
}

double standard_error(const QualityPoint& p) {
  return p.problems > 0 ? std::sqrt(p.pass * (1 - p.pass) / static_cast<double>(p.problems)) : 0;
}

class Picture {
 public:
  explicit Picture(const std::vector<QualityPoint>& points) {
    for (const QualityPoint& p : points) {
      models_.insert(p.model);
      problems_.insert(p.problems);
      if (p.budget == 0) {
        full_ = {p};
      } else {
        policies_[p.policy][p.budget] = p;
      }
    }
  }

  std::string draw() {
    double lowest = 100;
    each([&](const QualityPoint& p) {
      lowest = std::min(lowest, 100 * (p.pass - standard_error(p)));
      fastest_ = std::max(fastest_, p.tokens_per_second);
    });
    const double step = tick_step(std::max(100 - (lowest - 2), 10.0));
    const double low = std::max(0.0, std::floor((lowest - 2) / step) * step);
    title();
    by_budget(low);
    by_speed(low);
    legend();
    return svg_.finish();
  }

 private:
  template <typename Visit>
  void each(Visit visit) const {
    for (const auto& [policy, budgets] : policies_) {
      for (const auto& [budget, point] : budgets) visit(point);
    }
    if (!full_.empty()) visit(full_.front());
  }

  void title() {
    std::string text = "Answers kept under a cap";
    if (models_.size() == 1 && !models_.begin()->empty()) text += ": " + *models_.begin();
    if (problems_.size() == 1) text += fmt::format(", {} problems", *problems_.begin());
    svg_.text(kWidth / 2, 26, text, "text-anchor=\"middle\" font-size=\"16\" font-weight=\"bold\"");
  }

  // The frame of a panel; `x_label` below it. The scale of pass@1.
  Axis frame(double left, double right, double low, const char* x_label) {
    const Axis y{low, 100, kBottom, kTop};
    for (double tick = low; tick <= 100.001; tick += tick_step(100 - low)) {
      svg_.line(left, y.at(tick), right, y.at(tick), kGrid);
      svg_.text(left - 8, y.at(tick) + 4, fmt::format("{:g}", tick), "text-anchor=\"end\"");
    }
    svg_.line(left, kBottom, right, kBottom, kInk);
    svg_.line(left, kTop, left, kBottom, kInk);
    svg_.text((left + right) / 2, kBottom + 42, x_label, "text-anchor=\"middle\"");
    const double middle = (kTop + kBottom) / 2;
    svg_.text(left - 44, middle, "pass@1, %",
              fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 {:.1f} {:.1f})\"",
                          left - 44, middle)
                  .c_str());
    return y;
  }

  void by_budget(double low) {
    constexpr double left = 74, right = 450;
    const Axis y = frame(left, right, low, "KV budget, tokens per layer and head");
    std::set<int64_t> budgets;
    for (const auto& [policy, points] : policies_) {
      for (const auto& [budget, point] : points) budgets.insert(budget);
    }
    if (!full_.empty()) {
      const double at = y.at(100 * full_.front().pass);
      svg_.line(left, at, right, at, kFull.color, "stroke-width=\"1.5\" stroke-dasharray=\"6 4\"");
    }
    if (budgets.empty()) return;
    // Doublings are equally far apart.
    Axis x{std::log2(static_cast<double>(*budgets.begin())),
           std::log2(static_cast<double>(*budgets.rbegin())), left + 30, right - 30};
    if (budgets.size() == 1) x = {x.low - 1, x.high + 1, x.begin, x.end};
    double last_label = left - 100;
    for (const int64_t budget : budgets) {
      const double at = x.at(std::log2(static_cast<double>(budget)));
      svg_.line(at, kBottom, at, kBottom + 5, kInk);
      if (at - last_label < 34) continue;
      svg_.text(at, kBottom + 20, std::to_string(budget), "text-anchor=\"middle\"");
      last_label = at;
    }
    for (const auto& [policy, points] : policies_) {
      const Style style = style_of(policy);
      std::vector<std::array<double, 2>> line;
      for (const auto& [budget, p] : points) {
        const double px = x.at(std::log2(static_cast<double>(budget)));
        const double error = 100 * standard_error(p);
        const double above = y.at(std::min(100.0, 100 * p.pass + error));
        svg_.line(px, above, px, y.at(100 * p.pass - error), style.color, "stroke-opacity=\"0.5\"");
        line.push_back({px, y.at(100 * p.pass)});
      }
      svg_.path(line, style.color);
      for (const auto& [px, py] : line) svg_.mark(px, py, style);
    }
  }

  void by_speed(double low) {
    constexpr double left = 560, right = 936;
    const Axis y = frame(left, right, low, "output tokens a second");
    const double step = tick_step(std::max(fastest_, 1e-3));
    const Axis x{0, std::ceil(fastest_ * 1.05 / step) * step, left, right};
    for (double tick = 0; tick <= x.high * 1.0001; tick += step) {
      svg_.line(x.at(tick), kBottom, x.at(tick), kBottom + 5, kInk);
      svg_.text(x.at(tick), kBottom + 20, fmt::format("{:g}", tick), "text-anchor=\"middle\"");
    }
    std::vector<std::array<double, 2>> taken;  // middles of marks and labels
    each([&](const QualityPoint& p) {
      taken.push_back({x.at(p.tokens_per_second), y.at(100 * p.pass)});
    });
    for (const auto& [policy, points] : policies_) {
      const Style style = style_of(policy);
      std::vector<std::array<double, 2>> line;
      for (const auto& [budget, p] : points)
        line.push_back({x.at(p.tokens_per_second), y.at(100 * p.pass)});
      svg_.path(line, style.color);
      size_t i = 0;
      for (const auto& [budget, p] : points) {
        svg_.mark(line[i][0], line[i][1], style);
        label(line[i], std::to_string(budget), style.color, taken);
        ++i;
      }
    }
    if (full_.empty()) return;
    const std::array<double, 2> at{x.at(full_.front().tokens_per_second),
                                   y.at(100 * full_.front().pass)};
    svg_.mark(at[0], at[1], kFull);
    label(at, "full", kFull.color, taken);
  }

  // Beside the mark where nothing else is, or below it.
  void label(const std::array<double, 2>& mark,
             const std::string& text,
             const char* color,
             std::vector<std::array<double, 2>>& taken) {
    constexpr double kOffsets[][2] = {{0, 17},   {0, -15},  {24, 2},    {-24, 2}, {22, 17},
                                      {-22, 17}, {22, -15}, {-22, -15}, {0, 31},  {0, -29}};
    std::array<double, 2> at{mark[0], mark[1] + 17};
    for (const auto& [dx, dy] : kOffsets) {
      const std::array<double, 2> here{mark[0] + dx, mark[1] + dy};
      const bool inside =
          here[1] > kTop - 16 && here[1] < kBottom - 4 && here[0] > 574 && here[0] < 940;
      if (inside && std::none_of(taken.begin(), taken.end(), [&](const auto& other) {
            return std::fabs(other[0] - here[0]) < 27 && std::fabs(other[1] - here[1]) < 12;
          })) {
        at = here;
        break;
      }
    }
    taken.push_back(at);
    svg_.text(at[0], at[1] + 4, text,
              fmt::format("text-anchor=\"middle\" font-size=\"11\" fill=\"{}\" stroke=\"#ffffff\" "
                          "stroke-width=\"3\" paint-order=\"stroke\"",
                          color)
                  .c_str());
  }

  void legend() {
    const double y = kHeight - 22;
    double width = full_.empty() ? 0 : 80;
    for (const auto& [policy, points] : policies_) width += 48 + 7.5 * double(policy.size());
    double x = (kWidth - width) / 2;
    for (const auto& [policy, points] : policies_) {
      const Style style = style_of(policy);
      svg_.line(x, y, x + 26, y, style.color, "stroke-width=\"2\"");
      svg_.mark(x + 13, y, style);
      svg_.text(x + 32, y + 4, policy);
      x += 48 + 7.5 * double(policy.size());
    }
    if (full_.empty()) return;
    svg_.line(x, y, x + 26, y, kFull.color, "stroke-width=\"1.5\" stroke-dasharray=\"6 4\"");
    svg_.mark(x + 13, y, kFull);
    svg_.text(x + 32, y + 4, "full KV");
  }

  Svg svg_;
  std::map<std::string, std::map<int64_t, QualityPoint>> policies_;
  std::vector<QualityPoint> full_;  // one or none
  std::set<std::string> models_;
  std::set<int64_t> problems_;
  double fastest_ = 0;
};

}  // namespace

std::string draw_quality(const std::vector<QualityPoint>& points) { return Picture(points).draw(); }

}  // namespace zipage::cli
