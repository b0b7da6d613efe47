#include "tokenizer/token_decoder.h"

#include <utility>

#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace zipage {

TokenDecoder::TokenDecoder(DecoderConfig config,
                           const std::vector<std::string>& token_bytes,
                           std::vector<bool> special)
    : config_(std::move(config)), special_(std::move(special)) {
  bytes_.assign(token_bytes);
}

void TokenDecoder::append(int32_t id, bool skip_special, State& state, std::string& out) const {
  if (id < 0 || id >= bytes_.size() || (skip_special && is_special(id))) return;
  std::string_view bytes = bytes_.at(id);
  std::string changed;
  if (state.first && !config_.drop_in_first.empty()) {
    changed = bytes;
    replace_all(changed, config_.drop_in_first, "");
    bytes = changed;
  }
  if (!state.first && config_.join_with_spaces) out += ' ';
  state.first = false;
  while (state.stripping && !bytes.empty()) {
    if (state.num_stripped < config_.max_strip_left && bytes.starts_with(config_.strip_left)) {
      bytes.remove_prefix(config_.strip_left.size());
      ++state.num_stripped;
    } else {
      state.stripping = false;
    }
  }
  out += bytes;
}

std::string TokenDecoder::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  State state;
  for (const int32_t id : ids) append(id, skip_special, state, bytes);
  if (is_valid_utf8(bytes)) return bytes;
  std::string text;
  append_lossy_utf8(bytes, text);
  return text;
}

// Holds back an unfinished character only: the texts put together are decode() of all ids.
class StreamDecoder : public IncrementalDecoder {
 public:
  StreamDecoder(const TokenDecoder& decoder, bool skip_special)
      : decoder_(decoder), skip_special_(skip_special) {}

  std::string push(int32_t id) override {
    decoder_.append(id, skip_special_, state_, pending_);
    size_t done = 0;
    std::string text;
    while (done < pending_.size()) {
      const Utf8Step step = read_utf8(pending_, done);
      if (step.truncated) break;
      text +=
          step.valid ? std::string_view(pending_).substr(done, step.length) : kReplacementCharacter;
      done += step.length;
    }
    pending_.erase(0, done);
    return text;
  }

  std::string finish() override {
    std::string text;
    append_lossy_utf8(pending_, text);
    pending_.clear();
    state_ = {};
    return text;
  }

 private:
  const TokenDecoder& decoder_;
  bool skip_special_;
  TokenDecoder::State state_;
  std::string pending_;  // fewer than 4 bytes between calls
};

std::unique_ptr<IncrementalDecoder> TokenDecoder::new_decoder(bool skip_special) const {
  return std::make_unique<StreamDecoder>(*this, skip_special);
}

}  // namespace zipage
