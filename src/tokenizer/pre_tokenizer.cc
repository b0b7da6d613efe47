#include "tokenizer/pre_tokenizer.h"

#include <array>
#include <bit>
#include <utility>

#include "base/check.h"

namespace zipage {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr size_t kMaxPatterns = 64;  // of Cuts

// Each pattern cuts what the ones before have left, around its matches. Mostly that is a word in
// which no match of most patterns can begin.
class Cuts : public PreTokenizer {
 public:
  explicit Cuts(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {
    ZIPAGE_CHECK(patterns_.size() <= kMaxPatterns);
    for (size_t byte = 0; byte < wanted_.size(); ++byte) {
      for (size_t step = 0; step < patterns_.size(); ++step) {
        const bool may_begin = patterns_[step].may_begin(static_cast<char>(byte));
        wanted_[byte] |= uint64_t{may_begin} << step;
      }
    }
  }

  void split(Piece piece, PieceSink sink) const override {
    if (patterns_.empty()) {
      sink(piece);
    } else {
      cut(0, piece, sink);
    }
  }

 private:
  void cut(size_t step, Piece piece, PieceSink sink) const {
    size_t done = 0;
    const auto emit = [&](size_t begin, size_t end) {
      if (begin == end) return;
      go_on(step + 1, {piece.text.substr(begin, end - begin), piece.first && begin == 0}, sink);
    };
    patterns_[step].for_each_match(piece.text, [&](size_t begin, size_t end) {
      emit(done, begin);
      emit(begin, end);
      done = end;
    });
    emit(done, piece.text.size());
  }

  void go_on(size_t step, Piece piece, PieceSink sink) const {
    if (step < patterns_.size()) {
      uint64_t wanted = 0;
      for (const char c : piece.text) wanted |= wanted_[static_cast<uint8_t>(c)];
      wanted &= ~uint64_t{0} << step;
      if (wanted != 0) {
        cut(static_cast<size_t>(std::countr_zero(wanted)), piece, sink);
        return;
      }
    }
    sink(piece);
  }

  std::vector<Pattern> patterns_;
  std::array<uint64_t, 256> wanted_{};  // by byte: which patterns may begin a match there
};

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

std::unique_ptr<PreTokenizer> make_cuts(std::vector<Pattern> patterns) {
  return std::make_unique<Cuts>(std::move(patterns));
}

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

std::unique_ptr<PreTokenizer> make_prefix_space() { return std::make_unique<PrefixSpace>(); }

std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement,
                                             PrependScheme scheme,
                                             bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

void PreTokenizerSteps::cut(Pattern pattern) {
  if (cuts_.size() == kMaxPatterns) close();
  cuts_.push_back(std::move(pattern));
}

void PreTokenizerSteps::add(std::unique_ptr<PreTokenizer> step) {
  close();
  steps_.push_back(std::move(step));
}

void PreTokenizerSteps::close() {
  if (!cuts_.empty()) steps_.push_back(make_cuts(std::exchange(cuts_, {})));
}

std::unique_ptr<PreTokenizer> PreTokenizerSteps::finish() {
  close();
  if (steps_.size() == 1) return std::move(steps_.front());
  return std::make_unique<Sequence>(std::move(steps_));
}

}  // namespace zipage
