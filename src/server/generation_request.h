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
  std::vector<std::string> names;   // served; the first is the main one
  int64_t longest_token_bytes = 0;  // of the vocabulary
};

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // empty when the client sent ids
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
  bool drop_output = false;  // max_tokens 0: only the echo is wanted
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
Prompt tokenize(const std::string& text,
                bool add_special_tokens,
                const ModelContext& context,
                const std::string& field);

}  // namespace zipage::server
