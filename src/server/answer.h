// The JSON of answers and of the chunks of a stream.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zipage/engine.h"

#include "server/generation_request.h"
#include "server/text_offsets.h"

namespace zipage::server {

// What has come for a choice and is not sent yet.
struct Piece {
  std::string text, reasoning;
  std::vector<int32_t> token_ids;
  std::vector<std::vector<TokenLogprob>> logprobs;  // one a token
  bool empty() const { return text.empty() && reasoning.empty() && token_ids.empty(); }
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// One choice of a stream's chunk, or of an answer. `index` is prompt * n + i.
struct ChoiceView {
  const GenerationRequest& request;
  const Prompt& prompt;
  const Tokenizer& tokenizer;
  int64_t index = 0;
  const Piece& piece;
  FinishReason finish_reason = FinishReason::kNone;
  const std::string& stop_reason;
  TextOffsets& offsets;  // of the choice's tokens so far
  // With echo and logprobs, in a choice's first view: of the prompt, whose text is `echo`.
  std::string_view echo;
  const std::vector<std::vector<TokenLogprob>>& echoed_logprobs;  // empty: none
};

boost::json::object choice_json(const ChoiceView& choice, bool delta);
// choice_json() of a delta as text, made without the object where that is possible: a stream has
// one a token.
std::string delta_text(const ChoiceView& choice);
boost::json::object usage_json(const Usage& usage);
// id, object, created, model, system_fingerprint: the same in every chunk.
boost::json::object answer_head(const GenerationRequest& request,
                                int64_t created,
                                const std::string& fingerprint);

// The two shapes of log-probabilities.
boost::json::object chat_logprobs(const ChoiceView& choice);
boost::json::object completion_logprobs(const ChoiceView& choice);
// vLLM's: null, then an object of token ids for each token; the token itself and `most` of the
// best.
boost::json::value prompt_logprobs_json(const std::vector<std::vector<TokenLogprob>>& lists,
                                        int32_t most,
                                        const Tokenizer& tokenizer);

}  // namespace zipage::server
