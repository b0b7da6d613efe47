#include "tokenizer/json_view.h"

namespace zipage {

boost::json::value parse_json(std::string_view text, const std::string& file) {
  boost::json::parse_options options;
  options.max_depth = 128;
  boost::json::error_code error;
  boost::json::stream_parser parser({}, options);
  const size_t parsed = parser.write_some(text.data(), text.size(), error);
  if (!error) parser.finish(error);
  if (error) {
    fail(StatusCode::kDataLoss, "{}: not JSON: {} near byte {}", file, error.message(), parsed);
  }
  for (size_t i = parsed; i < text.size(); ++i) {
    if (std::string_view(" \t\r\n").find(text[i]) == std::string_view::npos) {
      fail(StatusCode::kDataLoss, "{}: not JSON: more text after the value at byte {}", file, i);
    }
  }
  return parser.release();
}

void JsonView::wrong_kind(const char* wanted) const {
  const char* is = "null";
  switch (value_->kind()) {
    case boost::json::kind::null:
      break;
    case boost::json::kind::bool_:
      is = "a boolean";
      break;
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
    case boost::json::kind::double_:
      is = "a number";
      break;
    case boost::json::kind::string:
      is = "a string";
      break;
    case boost::json::kind::array:
      is = "an array";
      break;
    case boost::json::kind::object:
      is = "an object";
      break;
  }
  fail_invalid("{} is {}; it must be {}", where(), is, wanted);
}

JsonView JsonView::at(std::string_view key) const {
  const auto* found = object().if_contains(key);
  const std::string path = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  if (found == nullptr) fail_invalid("{}: {} is missing", file_, path);
  return JsonView(*found, file_, path);
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  const auto* found = object().if_contains(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return at(key);
}

JsonView JsonView::item(size_t index) const {
  const auto& items = array();
  if (index >= items.size()) fail_invalid("{} has no item {}", where(), index);
  return JsonView(items[index], file_, path_ + "[" + std::to_string(index) + "]");
}

const boost::json::object& JsonView::object() const {
  if (!value_->is_object()) wrong_kind("an object");
  return value_->get_object();
}

const boost::json::array& JsonView::array() const {
  if (!value_->is_array()) wrong_kind("an array");
  return value_->get_array();
}

std::string_view JsonView::string() const {
  if (!value_->is_string()) wrong_kind("a string");
  const auto& text = value_->get_string();
  return {text.data(), text.size()};
}

bool JsonView::boolean() const {
  if (!value_->is_bool()) wrong_kind("true or false");
  return value_->get_bool();
}

int64_t JsonView::integer() const {
  if (!value_->is_int64()) wrong_kind("an integer");
  return value_->get_int64();
}

bool JsonView::boolean_or(std::string_view key, bool fallback) const {
  const auto found = find(key);
  return found ? found->boolean() : fallback;
}

std::string JsonView::string_or(std::string_view key, std::string fallback) const {
  const auto found = find(key);
  return found ? std::string(found->string()) : std::move(fallback);
}

}  // namespace zipage
