// The body of /v1/chat/completions.
#include <limits>

#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/generation_request.h"

namespace zipage::server {
namespace {

// Tools that no answer may call are as good as none: with "none" any list is accepted, and the
// template does not see it. `list` and `choice` are tools and tool_choice, or their older names.
void refuse_tools(Fields& f, const char* list, const char* choice) {
  const auto* chosen = f.find(choice);
  const bool none = chosen != nullptr && *chosen == "none";
  f.only(choice, chosen == nullptr || none || *chosen == "auto", "none; tools come later");
  const auto* tools = f.find(list);
  if (tools != nullptr && !tools->is_array())
    fail_field(list, "expected a list, found {}", shown(*tools));
  f.only(list, tools == nullptr || none || tools->as_array().empty(),
         fmt::format("[], or any list with \"{}\": \"none\"; tools come later", choice));
}

void refuse_others(Fields& f) {
  refuse_tools(f, "tools", "tool_choice");
  refuse_tools(f, "functions", "function_call");
  const auto* parallel = f.find("parallel_tool_calls");
  f.only("parallel_tool_calls", parallel == nullptr || parallel->is_bool(), "true or false");
  const auto* modalities = f.find("modalities");
  f.only("modalities", modalities == nullptr || *modalities == boost::json::value{"text"},
         "[\"text\"]");
  const auto* echo = f.find("echo");
  f.only("echo", echo == nullptr || *echo == false, "false for chat");
}

void read_logprobs(Fields& f, GenerationRequest& request) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  request.with_logprobs = f.boolean("logprobs").value_or(false);
  const auto top = f.integer("top_logprobs", 0, kMost);
  if (top && *top > 0 && !request.with_logprobs)
    fail_field("top_logprobs", "needs \"logprobs\": true");
  if (request.with_logprobs) request.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
}

}  // namespace

GenerationRequest parse_chat(const boost::json::object& body,
                             const ModelContext& context,
                             const std::string& request_id) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  Fields f(body, kChat);
  GenerationRequest request;
  request.chat = true;
  read_common(f, context, request);
  request.id = "chatcmpl-" + (request.id.empty() ? request_id : request.id);
  refuse_others(f);
  read_logprobs(f, request);
  SamplingParams& p = request.sampling;
  const auto old_name = f.integer("max_tokens", 1, kMost);
  const auto new_name = f.integer("max_completion_tokens", 1, kMost);
  p.max_tokens = new_name ? new_name : old_name;
  request.include_reasoning = f.boolean("include_reasoning").value_or(true);
  request.prompts.push_back(read_chat_prompt(f, context));
  request.reasoning = reasoning_mode(context.options.reasoning_parser, request.prompts.back().text);
  truncate_prompts(f, context, request);
  f.finish();
  return request;
}

}  // namespace zipage::server
