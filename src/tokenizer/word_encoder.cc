#include "tokenizer/word_encoder.h"

#include <span>
#include <utility>

namespace zipage {
namespace {

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
      model_->encode(text, scratch, out);
      return;
    }
    cuts_.cut(step, text, [&](std::string_view piece) {
      encode_from(step + 1, piece, use_cache_for_pieces, scratch, out);
    });
  };
  if (!use_cache || !WordCache::fits(text) || step > UINT8_MAX) {
    go_on(use_cache);
    return;
  }
  const WordCache::Key key(text, static_cast<uint8_t>(step));
  if (cache_.find(key, out)) return;
  const size_t old_size = out.size();
  go_on(false);
  cache_.store(key, std::span(out).subspan(old_size));
}

}  // namespace zipage
