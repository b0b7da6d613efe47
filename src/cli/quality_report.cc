#include "cli/quality_report.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace zipage::cli {
namespace {

double number_of(const boost::json::object& setting,
                 const char* field,
                 double most,
                 const std::string& place) {
  const boost::json::value* value = setting.if_contains(field);
  if (value == nullptr) fail_invalid("{}: field '{}': missing", place, field);
  boost::system::error_code error;
  const double number = value->to_number<double>(error);
  if (error || !(number >= 0 && number <= most)) {
    fail_invalid("{}: field '{}': expected a number in [0, {}], found {}", place, field, most,
                 boost::json::serialize(*value));
  }
  return number;
}

// "full KV", or policy and budget as in "peak 512".
void parse_cache(const std::string& cache, const std::string& place, QualityPoint& point) {
  if (cache == "full KV") return;
  const size_t space = cache.find(' ');
  const char* end = cache.data() + cache.size();
  if (space != std::string::npos && space > 0) {
    const auto [rest, error] = std::from_chars(cache.data() + space + 1, end, point.budget);
    if (error == std::errc() && rest == end && point.budget > 0) {
      point.policy = cache.substr(0, space);
      return;
    }
  }
  fail_invalid("{}: field 'cache': expected 'full KV' or a policy and a budget, found '{}'", place,
               cache);
}

QualityPoint point_of(const boost::json::value& value, const std::string& place) {
  if (!value.is_object()) fail_invalid("{}: expected a JSON object", place);
  const boost::json::object& setting = value.as_object();
  const boost::json::value* cache = setting.if_contains("cache");
  if (cache == nullptr || !cache->is_string())
    fail_invalid("{}: field 'cache': missing; is this a report of 'zipage eval --json'?", place);
  QualityPoint point;
  parse_cache(std::string(cache->as_string()), place, point);
  point.pass = number_of(setting, "pass_at_1", 1, place);
  point.problems = static_cast<int64_t>(number_of(setting, "problems", 1e12, place));
  point.tokens_per_second = number_of(setting, "tokens_per_second", 1e12, place);
  if (const auto* model = setting.if_contains("model"); model != nullptr && model->is_string())
    point.model = std::string(model->as_string());
  return point;
}

bool is_partial(const boost::json::value& setting) {
  const boost::json::value* partial =
      setting.is_object() ? setting.as_object().if_contains("partial") : nullptr;
  return partial != nullptr && partial->is_bool() && partial->as_bool();
}

}  // namespace

std::vector<QualityPoint> read_quality_report(const std::string& path) {
  if (std::filesystem::is_directory(path))
    fail_invalid("--from: {}: a folder; expected a report of 'zipage eval --json'", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(StatusCode::kNotFound, "--from: {}: cannot read the file", path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  boost::system::error_code error;
  const boost::json::value report = boost::json::parse(text, error);
  if (error) fail_invalid("--from: {}: not JSON: {}", path, error.message());
  const boost::json::value* settings =
      report.is_object() ? report.as_object().if_contains("settings") : nullptr;
  std::vector<QualityPoint> points;
  if (settings == nullptr) {
    if (!is_partial(report)) points.push_back(point_of(report, "--from: " + path));
  } else {
    if (!settings->is_array()) fail_invalid("--from: {}: field 'settings': not a list", path);
    for (size_t i = 0; i < settings->as_array().size(); ++i) {
      const boost::json::value& setting = settings->as_array()[i];
      if (!is_partial(setting))
        points.push_back(point_of(setting, fmt::format("--from: {}: setting {}", path, i + 1)));
    }
  }
  if (points.empty()) fail_invalid("--from: {}: no whole setting in the report", path);
  return points;
}

}  // namespace zipage::cli
