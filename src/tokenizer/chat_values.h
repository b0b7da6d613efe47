// JSON as values of a template.
#pragma once

#include <boost/json.hpp>

#include "tokenizer/jinja/value.h"

namespace zipage {

jinja::Value to_template_value(const boost::json::value& json);

}  // namespace zipage
