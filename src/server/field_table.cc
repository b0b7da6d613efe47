#include "server/field_table.h"

#include "base/kv_policy_names.h"

namespace zipage::server {
namespace {

using T = FieldType;
constexpr Support kYes = Support::kHonoured, kNo = Support::kNeutral;

constexpr FieldInfo kFields[] = {
    {"model", T::kString, kGenerate | kTokenize | kDetokenize, kYes,
     "A served name; absent: the one model"},
    {"messages", T::kArray, kChat | kTokenize, kYes,
     "Roles system, developer, user, assistant, tool; content a string or parts of type text"},
    {"prompt", T::kAny, kCompletion | kTokenize, kYes,
     "A string, a list of strings, a list of token ids, or a list of such lists"},
    {"content", T::kString, kTokenize, kYes, "The same as prompt (llama.cpp)"},
    {"tokens", T::kArray, kDetokenize, kYes, "Token ids"},
    // How many, how long
    {"n", T::kInteger, kGenerate, kYes, "Answers a prompt, 1 to 128"},
    {"best_of", T::kInteger, kCompletion, kNo, "Only the value of n"},
    {"max_tokens", T::kInteger, kGenerate, kYes,
     "Most tokens; default 16 for completions, up to the model's length for chat"},
    {"max_completion_tokens", T::kInteger, kChat, kYes, "The same as max_tokens, and wins over it"},
    {"min_tokens", T::kInteger, kGenerate, kYes,
     "No stop before so many tokens; their text is not searched for stop strings"},
    {"truncate_prompt_tokens", T::kInteger, kGenerate, kYes,
     "Keep only the last so many prompt tokens; -1: as many as fit"},
    // Sampling
    {"temperature", T::kNumber, kGenerate, kYes, "0 is greedy"},
    {"top_p", T::kNumber, kGenerate, kYes, "In (0, 1]"},
    {"top_k", T::kInteger, kGenerate, kYes, "0 or -1: all"},
    {"min_p", T::kNumber, kGenerate, kYes, "In [0, 1]"},
    {"typical_p", T::kNumber, kGenerate, kYes, "In (0, 1]"},
    {"presence_penalty", T::kNumber, kGenerate, kYes, "In [-2, 2]"},
    {"frequency_penalty", T::kNumber, kGenerate, kYes, "In [-2, 2]"},
    {"repetition_penalty", T::kNumber, kGenerate, kYes, "Above 0; 1 is none"},
    {"seed", T::kInteger, kGenerate, kYes, "The same seed, the same tokens; -1: none"},
    {"logit_bias", T::kObject, kGenerate, kYes, "{\"token id\": number in [-100, 100]}"},
    {"allowed_token_ids", T::kArray, kGenerate, kYes, "Only these tokens; not an empty list"},
    {"bad_words", T::kArray, kGenerate, kYes,
     "At most 1024 strings, 64 KiB in all, that may not appear"},
    {"length_penalty", T::kNumber, kGenerate, kNo, "Only 1 (beam search is not supported)"},
    {"use_beam_search", T::kBoolean, kGenerate, kNo, "Only false"},
    // Stops
    {"stop", T::kAny, kGenerate, kYes, "A string or a list of at most 64, 64 KiB in all"},
    {"stop_token_ids", T::kArray, kGenerate, kYes, "Token ids that end an answer"},
    {"include_stop_str_in_output", T::kBoolean, kGenerate, kYes, "Default false"},
    {"ignore_eos", T::kBoolean, kGenerate, kYes, "Default false"},
    // What is returned
    {"stream", T::kBoolean, kGenerate, kYes, "Server-sent events"},
    {"stream_options", T::kObject, kGenerate, kYes,
     "{include_usage, continuous_usage_stats}; only with stream"},
    {"logprobs", T::kAny, kGenerate, kYes,
     "Chat: true or false; completions: alternatives a token"},
    {"top_logprobs", T::kInteger, kChat, kYes, "Alternatives a token; needs logprobs: true"},
    {"prompt_logprobs", T::kInteger, kGenerate, kYes,
     "Alternatives a prompt token, 0 to 20, in vLLM's shape; not with stream"},
    {"echo", T::kBoolean, kGenerate, kYes,
     "Completions: the prompt in front of the answer, with logprobs its tokens' too. Chat: only "
     "false"},
    {"suffix", T::kString, kCompletion, kNo, "Only empty"},
    {"skip_special_tokens", T::kBoolean, kGenerate, kYes, "Default true"},
    {"spaces_between_special_tokens", T::kBoolean, kGenerate, kNo, "Only true"},
    {"return_token_ids", T::kBoolean, kGenerate, kYes, "Adds prompt_token_ids and token_ids"},
    {"return_tokens_as_token_ids", T::kBoolean, kGenerate, kYes,
     "Tokens of logprobs as \"token_id:N\""},
    {"include_reasoning", T::kBoolean, kChat, kYes, "false: reasoning is dropped"},
    {"return_token_strs", T::kBoolean, kTokenize, kYes, "Adds token_strs"},
    // Prompt building
    {"add_special_tokens", T::kBoolean, kGenerate | kTokenize, kYes,
     "Default true; for messages false"},
    {"add_generation_prompt", T::kBoolean, kChat | kTokenize, kYes, "Default true"},
    {"continue_final_message", T::kBoolean, kChat | kTokenize, kYes, "Default false"},
    {"chat_template", T::kString, kChat | kTokenize, kYes,
     "Only with --trust-request-chat-template"},
    {"chat_template_kwargs", T::kObject, kChat | kTokenize, kYes, "Variables of the template"},
    {"documents", T::kArray, kChat, kYes, "A variable of the template"},
    {"reasoning_effort", T::kString, kChat, kYes, "A variable of the template"},
    // Later
    {"response_format", T::kObject, kGenerate, kNo, "Only {\"type\": \"text\"}"},
    {"structured_outputs", T::kObject, kGenerate, kNo, "Only null"},
    {"tools", T::kArray, kChat, kNo, "Only [], or with tool_choice \"none\""},
    {"tool_choice", T::kAny, kChat, kNo, "Only \"none\" (or \"auto\", without tools)"},
    {"parallel_tool_calls", T::kBoolean, kChat, kNo, "Either, as there are no tools"},
    {"functions", T::kArray, kChat, kNo, "Only [], or with function_call \"none\""},
    {"function_call", T::kAny, kChat, kNo, "Only \"none\" (or \"auto\", without functions)"},
    {"thinking_token_budget", T::kInteger, kGenerate, kNo, "Only null"},
    {"modalities", T::kArray, kChat, kNo, "Only [\"text\"]"},
    // Accepted with any value: nothing is stored, billed or cached elsewhere
    {"store", T::kBoolean, kGenerate, kYes, "Without effect: nothing is stored"},
    {"metadata", T::kObject, kGenerate, kYes, "Without effect"},
    {"service_tier", T::kString, kGenerate, kYes, "Without effect"},
    {"prediction", T::kObject, kGenerate, kYes, "Without effect: the answer is the same"},
    {"prompt_cache_key", T::kString, kGenerate, kYes, "Without effect: prefixes are cached anyway"},
    {"prompt_cache_retention", T::kString, kGenerate, kYes, "Without effect"},
    {"safety_identifier", T::kString, kGenerate, kYes, "Without effect"},
    // The request itself
    {"user", T::kString, kGenerate, kYes, "Written to the request log"},
    {"request_id", T::kString, kGenerate, kYes, "Becomes the answer's id"},
    {"priority", T::kInteger, kGenerate, kYes,
     "Smaller runs first; other than 0 only where the server schedules by priority"},
    {"cache_salt", T::kString, kGenerate, kYes, "Separates prefix-cache entries"},
    // Ours
    {"kv_budget", T::kAny, kGenerate, kYes,
     "Tokens kept per layer and KV head, a multiple of the block size; 0 or \"full\": no cap"},
    {"kv_policy", T::kString, kGenerate, kYes, kv_policy_names()},
};

}  // namespace

std::span<const FieldInfo> field_table() { return kFields; }

const FieldInfo* find_field(std::string_view name, unsigned endpoint) {
  for (const FieldInfo& field : kFields) {
    if (field.name == name && (field.endpoints & endpoint) != 0) return &field;
  }
  return nullptr;
}

}  // namespace zipage::server
