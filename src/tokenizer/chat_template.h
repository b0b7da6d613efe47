// Chat messages to a prompt's text by a model's Jinja template.
#pragma once

#include <map>
#include <string>

#include "zipage/tokenizer.h"

#include "base/error.h"

namespace zipage {

class ChatTemplate {
 public:
  ChatTemplate(const std::string&, const std::string&) {}
  std::string render(const std::string&,
                     const ChatOptions&,
                     const std::map<std::string, std::string>&) const {
    fail(StatusCode::kUnimplemented, "chat templates are not there yet");
  }
};

}  // namespace zipage
