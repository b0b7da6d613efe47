#include "server/fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "server/api_error.h"
#include "server/text_offsets.h"

namespace zipage::server {

std::string shown(const boost::json::value& value) {
  constexpr size_t kLongest = 60;
  boost::json::serializer serializer;
  serializer.reset(&value);
  // Only the beginning of what may be megabytes.
  std::array<char, kLongest + 4> buffer{};
  std::string text(serializer.read(buffer.data(), buffer.size()));
  if (text.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return text;
}

ApiError scan_failure(const JsonScan& scan) {
  const std::string& field = scan.field();
  return {400, field, lossy_text(field.empty() ? "body" : field) + ": " + scan.error()};
}

boost::json::object parse_body(std::string_view body,
                               const std::shared_ptr<const CountLimits>& limits) {
  JsonScan scan(limits);
  if (!scan.feed(body)) throw scan_failure(scan);
  boost::system::error_code error;
  boost::json::parse_options options;
  options.max_depth = static_cast<size_t>(limits->depth);
  boost::json::stream_parser parser({}, options);
  parser.reset(boost::json::make_shared_resource<boost::json::monotonic_resource>());
  size_t used = parser.write_some(body.data(), body.size(), error);
  if (!error && used < body.size()) error = boost::json::error::extra_data;
  if (!error) parser.finish(error);
  if (error) {
    throw ApiError(400, "",
                   fmt::format("body: not JSON: {} near byte {}", error.message(),
                               std::min(used, body.size())));
  }
  boost::json::value value = parser.release();
  if (!value.is_object())
    throw ApiError(400, "", "body: expected a JSON object, found " + shown(value));
  return std::move(value.as_object());
}

Fields::Fields(const boost::json::object& object, unsigned endpoint) : object_(object) {
  for (const auto& member : object) {
    const std::string name(member.key());
    if (member.value().is_null() || find_field(name, endpoint) != nullptr) continue;
    fail_field(name.substr(0, 80), "unknown field; see /openapi.json for those of this endpoint");
  }
}

const boost::json::value* Fields::find(std::string_view name) {
  const auto* value = object_.if_contains(name);
  if (value == nullptr) return nullptr;
  seen_.push_back(name);
  return value->is_null() ? nullptr : value;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool())
    fail_field(std::string(name), "expected true or false, found {}", shown(*value));
  return value->as_bool();
}

std::optional<int64_t> exact_integer(const boost::json::value& value) {
  if (value.is_int64()) return value.as_int64();
  if (!value.is_double()) return std::nullopt;
  const double number = value.as_double();
  // Beyond 2^53 a double is no longer the number that was written; not a number fails this too.
  if (!(std::fabs(number) <= 0x1p53) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = exact_integer(*value);
  if (!number || *number < low || *number > high) {
    fail_field(std::string(name), "expected an integer in [{}, {}], found {}", low, high,
               shown(*value));
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name) {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->to_number<double>() : INFINITY;
  // 1e400 is a JSON number, and no double.
  if (!std::isfinite(number))
    fail_field(std::string(name), "expected a number, found {}", shown(*value));
  return number;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string())
    fail_field(std::string(name), "expected a string, found {}", shown(*value));
  return std::string(value->as_string());
}

std::vector<int32_t> read_token_ids(const boost::json::value& value, const std::string& field) {
  if (!value.is_array()) fail_field(field, "expected a list of token ids, found {}", shown(value));
  std::vector<int32_t> ids;
  ids.reserve(value.as_array().size());
  for (const auto& item : value.as_array()) {
    const std::optional<int64_t> id = exact_integer(item);
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max())
      fail_field(field, "expected token ids, found {}", shown(item));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

std::vector<int32_t> Fields::token_ids(std::string_view name) {
  const auto* value = find(name);
  return value == nullptr ? std::vector<int32_t>() : read_token_ids(*value, std::string(name));
}

std::vector<std::string> Fields::texts(std::string_view name, size_t most, size_t most_bytes) {
  const auto* value = find(name);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  const std::string field(name);
  auto add = [&, bytes = size_t{0}](const boost::json::string& text) mutable {
    bytes += text.size();
    if (bytes > most_bytes) fail_field(field, "more than {} bytes", most_bytes);
    texts.emplace_back(text);
  };
  if (value->is_string()) {
    add(value->as_string());
    return texts;
  }
  if (!value->is_array())
    fail_field(field, "expected a string or a list of strings, found {}", shown(*value));
  if (value->as_array().size() > most)
    fail_field(field, "{} strings; at most {}", value->as_array().size(), most);
  for (const auto& item : value->as_array()) {
    if (!item.is_string()) fail_field(field, "expected strings, found {}", shown(item));
    add(item.as_string());
  }
  return texts;
}

void Fields::only(std::string_view name, bool neutral, std::string_view accepted) {
  const auto* value = object_.if_contains(name);
  if (value == nullptr) return;
  seen_.push_back(name);
  if (!neutral)
    fail_field(std::string(name), "{} is not supported; accepted: {}", shown(*value), accepted);
}

void Fields::finish() const {
  for (const auto& member : object_) {
    const std::string_view name = member.key();
    if (member.value().is_null()) continue;
    ZIPAGE_CHECK(std::find(seen_.begin(), seen_.end(), name) != seen_.end());
  }
}

}  // namespace zipage::server
