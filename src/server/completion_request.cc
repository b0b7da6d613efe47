// The body of /v1/completions.
#include <algorithm>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace zipage::server {
namespace {

void read_prompts(Fields& f, const ModelContext& context, GenerationRequest& request) {
  const bool special = f.boolean("add_special_tokens").value_or(true);
  const bool cut = f.find("truncate_prompt_tokens") != nullptr;
  const auto* value = f.find("prompt");
  if (value == nullptr) fail_field("prompt", "missing");
  if (value->is_string()) {
    request.prompts.push_back(
        tokenize(std::string(value->as_string()), special, context, "prompt", cut));
    return;
  }
  if (!value->is_array())
    fail_field("prompt", "expected text, token ids or a list of them, found {}", shown(*value));
  const auto& list = value->as_array();
  if (list.empty()) fail_field("prompt", "an empty list");
  if (list[0].is_number()) {
    request.prompts.push_back({read_token_ids(*value, "prompt"), ""});
    return;
  }
  const auto most = context.options.limits.max_sequences_per_request;
  if (static_cast<int64_t>(list.size()) > most)
    fail_field("prompt", "{} prompts; at most {}", list.size(), most);
  for (const auto& item : list) {
    if (item.is_string() && list[0].is_string()) {
      request.prompts.push_back(
          tokenize(std::string(item.as_string()), special, context, "prompt", cut));
    } else if (item.is_array() && list[0].is_array()) {
      request.prompts.push_back({read_token_ids(item, "prompt"), ""});
    } else {
      fail_field("prompt", "expected strings only or lists of token ids only, found {}",
                 shown(item));
    }
  }
}

}  // namespace

GenerationRequest parse_completion(const boost::json::object& body,
                                   const ModelContext& context,
                                   const std::string& request_id) {
  Fields f(body, kCompletion);
  GenerationRequest request;
  read_common(f, context, request);
  request.id = "cmpl-" + (request.id.empty() ? request_id : request.id);
  SamplingParams& p = request.sampling;
  request.echo = f.boolean("echo").value_or(false);
  p.max_tokens = f.integer("max_tokens", 0, std::numeric_limits<int32_t>::max()).value_or(16);
  if (*p.max_tokens == 0) {
    if (!request.echo && !request.prompt_logprobs) {
      fail_field("max_tokens", "0: expected at least 1 (0 only with echo or prompt_logprobs)");
    }
    request.drop_output = true;
    p.min_tokens = 0;
  }
  if (const auto k = f.integer("logprobs", 0, std::numeric_limits<int32_t>::max())) {
    p.logprobs = static_cast<int32_t>(*k);
    request.with_logprobs = true;
    // lm-eval's loglikelihood: the prompt's own log-probabilities in front.
    if (request.echo) p.prompt_logprobs = std::max(p.prompt_logprobs.value_or(0), *p.logprobs);
  }
  const auto best_of = f.integer("best_of", 1, 1 << 20);
  f.only("best_of", !best_of || *best_of == p.n, "the value of n");
  const auto suffix = f.text("suffix");
  f.only("suffix", !suffix || suffix->empty(), "an empty string");
  read_prompts(f, context, request);
  truncate_prompts(f, context, request);
  for (Prompt& prompt : request.prompts) {
    if (request.echo && prompt.text.empty())
      prompt.text = context.tokenizer.decode(prompt.tokens, /*skip_special_tokens=*/false);
  }
  // Each prompt is a request of its own to the engine, with a copy of these.
  constexpr int64_t kMostEntries = 1 << 20;
  const int64_t entries = static_cast<int64_t>(request.prompts.size()) * num_list_entries(p);
  if (request.prompts.size() > 1 && entries > kMostEntries) {
    fail_field("prompt",
               "{} prompts with {} entries of logit_bias, token ids and words each are "
               "more than {} in all",
               request.prompts.size(), num_list_entries(p), kMostEntries);
  }
  const int64_t sequences = static_cast<int64_t>(request.prompts.size()) * p.n;
  if (sequences > context.options.limits.max_sequences_per_request) {
    fail_field("n", "{} prompts times n {} are more than {} sequences", request.prompts.size(), p.n,
               context.options.limits.max_sequences_per_request);
  }
  f.finish();
  return request;
}

}  // namespace zipage::server
