// Chat messages to a prompt's text by a model's Jinja template.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "zipage/tokenizer.h"

#include "tokenizer/jinja/template.h"

namespace zipage {

// A parsed template. Immutable, thread-safe.
class ChatTemplate {
 public:
  // `where` names the template in messages. Throws Error if it does not parse.
  ChatTemplate(const std::string& source, const std::string& where);

  // `named_tokens`: variables such as "bos_token". Throws Error.
  std::string render(const std::string& messages_json,
                     const ChatOptions& options,
                     const std::map<std::string, std::string>& named_tokens) const;

 private:
  jinja::Template template_;
  std::string where_;
};

}  // namespace zipage
