#include "server/body_limits.h"

#include <algorithm>

namespace zipage::server {

std::shared_ptr<const CountLimits> count_limits(const CountLimitInputs& inputs) {
  // Each message is a few tokens at least.
  const int64_t messages = std::clamp<int64_t>(inputs.max_model_len, 256, 16384);
  // Token ids: prompts that are cut to the context, and batches of prompts, are longer than it.
  const int64_t ids = std::max<int64_t>(int64_t{1} << 20, 4 * inputs.max_model_len);
  const int64_t lists = std::max<int64_t>(1024, inputs.max_sequences_per_request);
  const int64_t vocab = std::max<int64_t>(1024, inputs.vocab_size);
  CountLimits limits;
  limits.fields = {
      {"messages", messages, 16 * messages},
      {"prompt", ids, ids + lists},
      {"tokens", ids, ids},
      {"allowed_token_ids", vocab, vocab + 1},
      {"stop_token_ids", 4096, 4097},
      {"logit_bias", 16384, 16385},
      {"bad_words", 1024, 1025},
      {"stop", 64, 65},
      {"chat_template_kwargs", 256, 4096},
      {"documents", 1024, 16384},
      {"tools", 512, 65536},
      {"functions", 512, 65536},
      {"metadata", 256, 4096},
      {"response_format", 1024, 65536},
      {"structured_outputs", 1024, 65536},
      {"stream_options", 16, 64},
  };
  return std::make_shared<const CountLimits>(std::move(limits));
}

uint64_t most_body_bytes(uint64_t told_bytes, int64_t max_model_len) {
  if (told_bytes > 0) return told_bytes;
  const auto tokens = static_cast<uint64_t>(std::max<int64_t>(0, max_model_len));
  return std::max<uint64_t>(16 << 20, 32 * tokens);
}

}  // namespace zipage::server
