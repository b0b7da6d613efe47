#include "cli/load_answer.h"

#include <boost/json.hpp>
#include <boost/json/monotonic_resource.hpp>

namespace zipage::cli {
namespace {

namespace json = boost::json;

// Null unless `value` is an object that has the member, and the member is not null.
const json::value* member(const json::value& value, const char* name) {
  const json::object* object = value.if_object();
  const json::value* found = object != nullptr ? object->if_contains(name) : nullptr;
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string_view text_of(const json::value* value) {
  if (value == nullptr || !value->is_string()) return {};
  return {value->as_string().data(), value->as_string().size()};
}

int64_t integer_of(const json::value* value) {
  return value != nullptr && value->is_int64() ? value->as_int64() : 0;
}

const json::array* list_of(const json::value* value) {
  return value != nullptr ? value->if_array() : nullptr;
}

}  // namespace

std::string error_message(std::string_view body) {
  boost::system::error_code error;
  const json::value value = json::parse({body.data(), body.size()}, error);
  if (!error) {
    if (const json::value* object = member(value, "error")) {
      if (const auto message = text_of(member(*object, "message")); !message.empty())
        return std::string(message.substr(0, 200));
      if (const auto message = text_of(object); !message.empty())
        return std::string(message.substr(0, 200));
    }
  }
  return std::string(body.substr(0, 200));
}

void AnswerNotes::event(std::string_view data, double now) {
  if (done_) return fail("an event after [DONE]");
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  unsigned char memory[4096];
  json::monotonic_resource resource(memory, sizeof(memory));
  boost::system::error_code error;
  const json::value value = json::parse({data.data(), data.size()}, error, &resource);
  if (error || !value.is_object()) return fail("an event that is no JSON object");
  if (member(value, "error") != nullptr) return fail("in the stream: " + error_message(data));
  if (const json::value* usage = member(value, "usage")) {
    counted_ = true;
    result_.prompt_tokens = integer_of(member(*usage, "prompt_tokens"));
    result_.output_tokens = integer_of(member(*usage, "completion_tokens"));
  }
  const json::array* choices = list_of(member(value, "choices"));
  if (choices == nullptr) return;
  bool token = false;
  for (const json::value& choice : *choices) {
    if (member(choice, "finish_reason") != nullptr) finished_ = true;
    const json::value* delta = member(choice, "delta");
    const json::value& part = delta != nullptr ? *delta : choice;
    const auto text = text_of(member(part, delta != nullptr ? "content" : "text"));
    auto reasoning = text_of(member(part, "reasoning"));
    if (reasoning.empty()) reasoning = text_of(member(part, "reasoning_content"));
    const json::array* ids = list_of(member(choice, "token_ids"));
    token = token || !text.empty() || !reasoning.empty() || (ids != nullptr && !ids->empty());
    if (!keep_output_) continue;
    result_.text += text;
    if (ids == nullptr) continue;
    for (const json::value& id : *ids)
      result_.token_ids.push_back(static_cast<int32_t>(integer_of(&id)));
  }
  if (!token) return;
  ++result_.chunks;
  if (result_.first_token < 0) {
    result_.first_token = now;
  } else {
    result_.gaps.push_back(static_cast<float>(now - result_.last_token));
  }
  result_.last_token = now;
}

void AnswerNotes::whole(std::string_view body, double now) {
  boost::system::error_code error;
  const json::value value = json::parse({body.data(), body.size()}, error);
  const json::value* usage = error ? nullptr : member(value, "usage");
  const json::array* choices = error ? nullptr : list_of(member(value, "choices"));
  if (usage == nullptr || choices == nullptr) return fail("an answer without choices and usage");
  counted_ = finished_ = true;
  result_.first_token = result_.last_token = now;
  result_.prompt_tokens = integer_of(member(*usage, "prompt_tokens"));
  result_.output_tokens = integer_of(member(*usage, "completion_tokens"));
  if (!keep_output_) return;
  for (const json::value& choice : *choices) {
    const json::value* message = member(choice, "message");
    result_.text += text_of(
        member(message != nullptr ? *message : choice, message != nullptr ? "content" : "text"));
    const json::array* ids = list_of(member(choice, "token_ids"));
    if (ids == nullptr) continue;
    for (const json::value& id : *ids)
      result_.token_ids.push_back(static_cast<int32_t>(integer_of(&id)));
  }
}

void AnswerNotes::finish(bool streamed) {
  if (streamed && !done_) fail("the stream ended without [DONE]");
  if (!finished_) fail("the answer ended without a finish_reason");
  if (!counted_) result_.output_tokens = result_.chunks;
}

}  // namespace zipage::cli
