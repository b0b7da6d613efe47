// What a chat template reads: texts or lists of parts, JSON objects or their text.
//
// Clients send a message's content as a string or as parts ({"type": "text", "text": ...}), and the
// arguments of a past tool call as a string of JSON. Templates differ in what they read: one that
// reads parts shows an empty turn for a string, one that joins strings fails on parts, and one that
// writes arguments with tojson encodes a string twice. So each template is tried once with a few
// short conversations of marked words, and messages are then handed over in a form that shows their
// text. Where both forms do, the client's own is kept, as transformers does.
//
//   const TemplateShape shape = probe_template(parsed, named_tokens);   // once a template
//   fit_messages(messages, shape, ChatContentFormat::kAuto);            // each rendering
//
// Plain functions; any thread.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <string>

#include "zipage/tokenizer.h"

#include "tokenizer/jinja/template.h"

namespace zipage {

// In which forms the content of one role's messages is shown.
struct ContentForm {
  bool text = true;         // a string
  bool parts = false;       // a list of parts
  bool many_parts = false;  // all of the list, not its first part only
};

struct TemplateShape {
  ContentForm system, user, assistant, tool;
  bool null_content = false;     // an assistant's null beside tool calls is not printed as "None"
  bool object_arguments = true;  // arguments of tool calls as an object; else as JSON's text
};

// Never throws; a template that shows nothing of what is tried gets strings and objects.
TemplateShape probe_template(const jinja::Template& parsed,
                             const std::map<std::string, std::string>& named_tokens);

// Brings contents and arguments into the form that the template reads. `messages`: an array of
// objects with a role. Throws Error for a part that is no text where a string is needed.
void fit_messages(boost::json::value& messages,
                  const TemplateShape& shape,
                  ChatContentFormat format);

}  // namespace zipage
