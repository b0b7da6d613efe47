// Chat messages to a prompt's text by a model's Jinja template.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "zipage/tokenizer.h"

#include "tokenizer/chat_shape.h"
#include "tokenizer/jinja/template.h"

namespace zipage {

// A parsed template. Immutable, thread-safe.
class ChatTemplate {
 public:
  // `where` names the template in messages. `named_tokens`: variables such as "bos_token". Throws
  // Error if it does not parse.
  ChatTemplate(const std::string& source,
               const std::string& where,
               std::map<std::string, std::string> named_tokens);

  // Messages are brought into the form that the template reads: see chat_shape.h. Throws Error.
  std::string render(const std::string& messages_json, const ChatOptions& options) const;
  const TemplateShape& shape() const { return shape_; }

 private:
  jinja::Template template_;
  std::map<std::string, std::string> named_tokens_;
  TemplateShape shape_;
  std::string where_;
};

}  // namespace zipage
