#include "server/prometheus.h"

#include <cmath>
#include <fmt/format.h>
#include <iterator>

namespace zipage::server {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::isnan(value)) return "NaN";
  return fmt::format("{}", value);
}

}  // namespace

std::string escape_label(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

void PrometheusText::family(std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void PrometheusText::sample(std::string_view name, std::string_view labels, double value) {
  if (labels.empty()) {
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name, number(value));
  } else {
    fmt::format_to(std::back_inserter(text_), "{}{{{}}} {}\n", name, labels, number(value));
  }
}

void PrometheusText::histogram(std::string_view name,
                               std::string_view labels,
                               const Histogram& histogram) {
  const std::string comma = labels.empty() ? "" : ",";
  const std::string bucket = std::string(name) + "_bucket";
  int64_t below = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    below += histogram.counts()[i];
    const std::string bound =
        i < histogram.bounds().size() ? number(histogram.bounds()[i]) : std::string("+Inf");
    sample(bucket, fmt::format("{}{}le=\"{}\"", labels, comma, bound), static_cast<double>(below));
  }
  sample(std::string(name) + "_sum", labels, histogram.sum());
  sample(std::string(name) + "_count", labels, static_cast<double>(histogram.total()));
}

void PrometheusText::gauge(std::string_view name,
                           std::string_view labels,
                           double value,
                           std::string_view help) {
  family(name, "gauge", help);
  sample(name, labels, value);
}

void PrometheusText::counter(std::string_view name,
                             std::string_view labels,
                             double value,
                             std::string_view help) {
  family(name, "counter", help);
  sample(name, labels, value);
}

}  // namespace zipage::server
