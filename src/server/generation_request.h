// A checked body of /v1/chat/completions or /v1/completions.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zipage/engine.h"
#include "zipage/tokenizer.h"

#include "server/fields.h"
#include "server/reasoning.h"
#include "server/server_options.h"

namespace zipage::server {

// What bodies are checked against. Outlives the parsing only.
struct ModelContext {
  const Tokenizer& tokenizer;
  const EngineInfo& info;
  SamplingParams defaults;
  const ServerOptions& options;
  // Served; the first is the main one.
  std::vector<std::string> names;
  // Of the vocabulary.
  int64_t longest_token_bytes = 0;
};

struct Prompt {
  std::vector<int32_t> tokens;
  // Empty when the client sent ids and does not want them echoed.
  std::string text;
};

struct GenerationRequest {
  bool chat = false;
  std::string id, model, user;
  std::vector<Prompt> prompts;
  SamplingParams sampling;
  int32_t priority = 0;
  std::string cache_salt;
  bool stream = false, include_usage = false, continuous_usage = false;
  bool echo = false;
  // max_tokens 0: only the echo is wanted.
  bool drop_output = false;
  bool with_logprobs = false;
  // What the client asked for; with echo the engine is asked for `logprobs` of the prompt too.
  std::optional<int32_t> prompt_logprobs;
  bool return_token_ids = false, tokens_as_ids = false;
  bool include_reasoning = true;
  ReasoningMode reasoning = ReasoningMode::kOff;
};

// Both throw ApiError naming the field.
GenerationRequest parse_chat(const boost::json::object& body,
                             const ModelContext& context,
                             const std::string& request_id);
GenerationRequest parse_completion(const boost::json::object& body,
                                   const ModelContext& context,
                                   const std::string& request_id);

// Shared by both (and by /tokenize where it applies).
void read_model(Fields& fields, const ModelContext& context, std::string* model);
void read_common(Fields& fields, const ModelContext& context, GenerationRequest& request);
void truncate_prompts(Fields& fields, const ModelContext& context, GenerationRequest& request);
// A text that is longer than the model's context can be is refused unread, unless it `will_be_cut`.
Prompt tokenize(const std::string& text,
                bool add_special_tokens,
                const ModelContext& context,
                const std::string& field,
                bool will_be_cut = false);
// Entries of the lists that the engine takes a copy of for each prompt.
int64_t num_list_entries(const SamplingParams& params);

}  // namespace zipage::server
