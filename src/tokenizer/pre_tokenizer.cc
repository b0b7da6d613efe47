#include "tokenizer/pre_tokenizer.h"

#include <utility>

namespace zipage {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

class Split : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(Piece piece, PieceSink sink) const override {
    const std::string_view text = piece.text;
    const auto emit = [&](size_t begin, size_t end) {
      if (end > begin) sink({text.substr(begin, end - begin), piece.first && begin == 0});
    };
    for (const Part& part : merged(parts(text))) {
      if (!(behavior_ == SplitBehavior::kRemoved && part.matched)) emit(part.begin, part.end);
    }
  }

 private:
  struct Part {
    size_t begin;
    size_t end;
    bool matched;
  };

  // The text as matches and what lies between them.
  std::vector<Part> parts(std::string_view text) const {
    std::vector<Part> out;
    size_t done = 0;
    pattern_.for_each_match(text, [&](size_t begin, size_t end) {
      if (begin != done) out.push_back({done, begin, invert_});
      out.push_back({begin, end, !invert_});
      done = end;
    });
    if (done != text.size()) out.push_back({done, text.size(), invert_});
    return out;
  }

  std::vector<Part> merged(std::vector<Part> in) const {
    std::vector<Part> out;
    bool previous = false;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        return in;
      case SplitBehavior::kMergedWithPrevious:
        for (const Part& part : in) {
          if (part.matched && !previous && !out.empty()) {
            out.back().end = part.end;
          } else {
            out.push_back(part);
          }
          previous = part.matched;
        }
        return out;
      case SplitBehavior::kMergedWithNext:
        for (auto part = in.rbegin(); part != in.rend(); ++part) {
          if (part->matched && !previous && !out.empty()) {
            out.back().begin = part->begin;
          } else {
            out.push_back(*part);
          }
          previous = part->matched;
        }
        return {out.rbegin(), out.rend()};
      case SplitBehavior::kContiguous:
        for (const Part& part : in) {
          if (!out.empty() && part.matched == previous) {
            out.back().end = part.end;
          } else {
            out.push_back(part);
          }
          previous = part.matched;
        }
        return out;
    }
    return out;
  }

  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class PrefixSpace : public PreTokenizer {
 public:
  void split(Piece piece, PieceSink sink) const override {
    if (piece.text.starts_with(' ')) {
      sink(piece);
      return;
    }
    std::string text = " ";
    text += piece.text;
    sink({text, piece.first});
  }
};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  void split(Piece piece, PieceSink sink) const override {
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 2 + replacement_.size());
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    const bool wanted =
        scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.first);
    if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
    if (!split_) {
      sink({text, piece.first});
      return;
    }
    const std::string_view view = text;
    for (size_t begin = 0; begin < view.size();) {
      size_t end = view.find(replacement_, begin == 0 && !view.starts_with(replacement_)
                                               ? 0
                                               : begin + replacement_.size());
      if (end == std::string_view::npos) end = view.size();
      sink({view.substr(begin, end - begin), piece.first && begin == 0});
      begin = end;
    }
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}

  void split(Piece piece, PieceSink sink) const override { run(0, piece, sink); }

 private:
  void run(size_t step, Piece piece, PieceSink sink) const {
    if (step == steps_.size()) {
      sink(piece);
    } else if (step + 1 == steps_.size()) {
      steps_[step]->split(piece, sink);
    } else {
      steps_[step]->split(piece, [&](Piece part) { run(step + 1, part, sink); });
    }
  }

  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

std::unique_ptr<PreTokenizer> make_prefix_space() { return std::make_unique<PrefixSpace>(); }

std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement,
                                             PrependScheme scheme,
                                             bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

void PreTokenizerSteps::add(std::unique_ptr<PreTokenizer> step) {
  for (Pattern& pattern : cuts_) {
    steps_.push_back(make_split(std::move(pattern), SplitBehavior::kIsolated, false));
  }
  cuts_.clear();
  steps_.push_back(std::move(step));
}

std::unique_ptr<PreTokenizer> PreTokenizerSteps::take_steps() {
  if (steps_.empty()) return nullptr;
  return std::make_unique<Sequence>(std::move(steps_));
}

}  // namespace zipage
