// The text format of Prometheus, version 0.0.4.
#pragma once

#include <string>
#include <string_view>

#include "server/histogram.h"

namespace zipage::server {

// `labels`: `a="b",c="d"`, escaped; may be empty.
class PrometheusText {
 public:
  // HELP and TYPE once a family; then its samples.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(std::string_view name, std::string_view labels, double value);
  void histogram(std::string_view name, std::string_view labels, const Histogram& histogram);
  // family() and one sample().
  void gauge(std::string_view name, std::string_view labels, double value, std::string_view help);
  void counter(std::string_view name, std::string_view labels, double value, std::string_view help);

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// A label's value with backslash, quote and line end escaped.
std::string escape_label(std::string_view value);

}  // namespace zipage::server
