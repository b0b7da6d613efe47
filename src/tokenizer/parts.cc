#include "tokenizer/parts.h"

#include <utility>

#include "tokenizer/byte_level.h"
#include "tokenizer/hf_steps.h"

namespace zipage {

std::unique_ptr<BpeModel> make_bpe_model(const BpeConfig& config,
                                         const std::vector<std::string>& tokens,
                                         const std::vector<Merge>& merges,
                                         StringIndex vocab) {
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  if (!config.byte_level) {
    for (int32_t id = 0; id < num_tokens; ++id) {
      const int byte = byte_of_token(tokens[static_cast<size_t>(id)]);
      if (byte >= 0) byte_ids[static_cast<size_t>(byte)] = id;
    }
    return std::make_unique<BpeModel>(config, std::move(vocab), merges, byte_ids, num_tokens);
  }
  const ByteAlphabet alphabet;
  StringIndex words(vocab.size());
  for (int32_t id = 0; id < num_tokens; ++id) {
    const std::string& token = tokens[static_cast<size_t>(id)];
    if (vocab.find(token) != id) continue;
    const auto bytes = alphabet.to_bytes(token);
    if (!bytes || bytes->empty()) continue;
    words.insert(*bytes, id);
    if (bytes->size() == 1) byte_ids[static_cast<uint8_t>(bytes->front())] = id;
  }
  return std::make_unique<BpeModel>(config, std::move(words), merges, byte_ids, num_tokens);
}

}  // namespace zipage
