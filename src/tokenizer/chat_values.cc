#include "tokenizer/chat_values.h"

#include <utility>
#include <vector>

namespace zipage {

jinja::Value to_template_value(const boost::json::value& json) {
  switch (json.kind()) {
    case boost::json::kind::null:
      return jinja::Value::none();
    case boost::json::kind::bool_:
      return jinja::Value::boolean(json.get_bool());
    case boost::json::kind::int64:
      return jinja::Value::integer(json.get_int64());
    case boost::json::kind::uint64:
      return jinja::Value::floating(static_cast<double>(json.get_uint64()));
    case boost::json::kind::double_:
      return jinja::Value::floating(json.get_double());
    case boost::json::kind::string:
      return jinja::Value::string({json.get_string().data(), json.get_string().size()});
    case boost::json::kind::array: {
      std::vector<jinja::Value> items;
      items.reserve(json.get_array().size());
      for (const auto& item : json.get_array()) items.push_back(to_template_value(item));
      return jinja::Value::list(std::move(items));
    }
    case boost::json::kind::object: {
      jinja::DictBuilder dict;
      for (const auto& [key, item] : json.get_object()) {
        dict.set({key.data(), key.size()}, to_template_value(item));
      }
      return dict.finish();
    }
  }
  return jinja::Value::none();
}

}  // namespace zipage
