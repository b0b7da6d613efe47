#include "tokenizer/word_encoder.h"

#include <span>
#include <utility>

namespace zipage {
namespace {

constexpr uint8_t kPartTag = UINT8_MAX;

// Words that begin with U+2581, however often. It stands for a space, and the models that have it
// hardly ever join it to what is before it: with them its words can be merged apart.
std::vector<Pattern> with_metaspace_words(std::vector<Pattern> patterns, const BpeModel& model) {
  if (model.may_cut_before("\xE2\x96\x81")) {
    patterns.emplace_back(R"(\x{2581}+[^\x{2581}]*|[^\x{2581}]+)", "words");
  }
  return patterns;
}

}  // namespace

WordEncoder::WordEncoder(std::vector<Pattern> cuts, std::unique_ptr<const BpeModel> model)
    : model_(std::move(model)), cuts_(with_metaspace_words(std::move(cuts), *model_)) {}

void WordEncoder::encode_from(size_t step,
                              std::string_view text,
                              bool use_cache,
                              BpeModel::Scratch& scratch,
                              std::vector<int32_t>& out) const {
  step = cuts_.next(step, text);
  const auto go_on = [&](bool use_cache_for_pieces) {
    if (step == cuts_.size()) {
      encode_word(text, scratch, out);
      return;
    }
    cuts_.cut(step, text, [&](std::string_view piece) {
      encode_from(step + 1, piece, use_cache_for_pieces, scratch, out);
    });
  };
  if (use_cache && WordCache::fits(text) && step < kPartTag) {
    remembered(text, static_cast<uint8_t>(step), out, [&] { go_on(false); });
  } else {
    go_on(use_cache);
  }
}

// A word that is not known may have parts that are.
void WordEncoder::encode_word(std::string_view word,
                              BpeModel::Scratch& scratch,
                              std::vector<int32_t>& out) const {
  if (const int32_t token = model_->find_whole(word); token >= 0) {
    out.push_back(token);
    return;
  }
  model_->cut(word, scratch, [&](std::string_view part, int32_t only) {
    const auto encode = [&] { model_->encode_part(part, scratch, out); };
    if (only >= 0) {
      out.push_back(only);
    } else if (WordCache::fits(part) && part.size() < word.size()) {
      remembered(part, kPartTag, out, encode);
    } else {
      encode();
    }
  });
}

template <typename Encode>
void WordEncoder::remembered(std::string_view text,
                             uint8_t tag,
                             std::vector<int32_t>& out,
                             const Encode& encode) const {
  const WordCache::Key key(text, tag);
  if (cache_.find(key, out)) return;
  const size_t old_size = out.size();
  encode();
  cache_.store(key, std::span(out).subspan(old_size));
}

}  // namespace zipage
