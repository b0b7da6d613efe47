#include "tokenizer/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <utf8proc.h>
#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace zipage {

namespace {

void replace_character(std::string& text, char from, std::string_view to) {
  const auto count = static_cast<size_t>(std::count(text.begin(), text.end(), from));
  if (count == 0) return;
  std::string out(text.size() - count + count * to.size(), '\0');
  char* end = out.data();
  for (const char c : text) {
    if (c == from) {
      end = std::copy(to.begin(), to.end(), end);
    } else {
      *end++ = c;
    }
  }
  text = std::move(out);
}

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  if (from.size() == 1) return replace_character(text, from[0], to);
  size_t found = text.find(from);
  if (found == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (; found != std::string::npos; found = text.find(from, done)) {
    out.append(text, done, found - done);
    out += to;
    done = found + from.size();
  }
  out.append(text, done);
  text = std::move(out);
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// Characters that composing (NFC) neither changes nor joins to what stands before them; not all of
// them, but those that fill texts.
constexpr struct {
  char32_t first;
  char32_t last;
} kSettled[] = {{0x0, 0x2FF},       {0x400, 0x482},    {0x48A, 0x52F},   {0x2010, 0x206F},
                {0x20A0, 0x20CF},   {0x2190, 0x2328},  {0x232B, 0x2ADB}, {0x2E80, 0x3029},
                {0x3030, 0x3098},   {0x309B, 0xA66E},  {0xAC00, 0xD7A3}, {0xFF00, 0xFFEF},
                {0x1F000, 0x1FAFF}, {0x20000, 0x2F7FF}};

class Form : public Normalizer {
 public:
  explicit Form(UnicodeForm form) : form_(form) {}
  bool leaves(std::string_view text) const override { return settled_end(text, 0) == text.size(); }
  // A settled character never changes, nor does it join what stands before it; what follows may
  // join it (a letter and its accent). So only the other runs are mapped, each with the character
  // in front of it.
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + 16);
    for (size_t i = 0; i < text.size();) {
      size_t end = settled_end(text, i);
      size_t run = end;
      if (end < text.size() && end > i) {
        do --run;
        while ((static_cast<uint8_t>(text[run]) & 0xC0) == 0x80);
      }
      out.append(text, i, run - i);
      while (end < text.size() && !is_settled(text, end)) end += utf8_length(text[end]);
      if (end > run) map(std::string_view(text).substr(run, end - run), out);
      i = end;
    }
    text = std::move(out);
  }

 private:
  bool is_settled(std::string_view text, size_t at) const {
    if (static_cast<uint8_t>(text[at]) < 0x80) return true;
    if (form_ != UnicodeForm::kNfc) return false;
    const char32_t c = read_utf8(text, at).code_point;
    for (const auto& range : kSettled) {
      if (c <= range.last) return c >= range.first;
    }
    return false;
  }
  size_t settled_end(std::string_view text, size_t begin) const {
    while (begin < text.size() && is_settled(text, begin)) begin += utf8_length(text[begin]);
    return begin;
  }
  void map(std::string_view text, std::string& out) const {
    int options = UTF8PROC_STABLE;
    switch (form_) {
      case UnicodeForm::kNfc:
        options |= UTF8PROC_COMPOSE;
        break;
      case UnicodeForm::kNfd:
        options |= UTF8PROC_DECOMPOSE;
        break;
      case UnicodeForm::kNfkc:
        options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
        break;
      case UnicodeForm::kNfkd:
        options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
        break;
    }
    utf8proc_uint8_t* mapped = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                     static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (length < 0) fail_invalid("cannot normalize the text: {}", utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  }

  UnicodeForm form_;
};

class Lowercase : public Normalizer {
 public:
  bool leaves(std::string_view) const override { return false; }
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = read_utf8(text, i);
      if (step.code_point == 0x130) {
        out += "i\xCC\x87";  // the one character whose lower case is two
      } else {
        append_utf8(
            static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.code_point))),
            out);
      }
      i += step.length;
    }
    text = std::move(out);
  }
};

class StripAccents : public Normalizer {
 public:
  bool leaves(std::string_view text) const override { return is_ascii(text); }
  void apply(std::string& text) const override {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = read_utf8(text, i);
      const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(step.code_point));
      const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                        category == UTF8PROC_CATEGORY_ME;
      if (!mark) out.append(text, i, step.length);
      i += step.length;
    }
    text = std::move(out);
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  bool leaves(std::string_view) const override { return false; }
  void apply(std::string& text) const override {
    size_t begin = 0;
    size_t end = text.size();
    if (left_) {
      while (begin < end) {
        const Utf8Step step = read_utf8(text, begin);
        if (!is_white_space(step.code_point)) break;
        begin += step.length;
      }
    }
    if (right_) {
      while (end > begin) {
        size_t last = end - 1;
        while (last > begin && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
        if (!is_white_space(read_utf8(text, last).code_point)) break;
        end = last;
      }
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  bool leaves(std::string_view text) const override { return text.empty() || prefix_.empty(); }
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceString : public Normalizer {
 public:
  ReplaceString(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  bool leaves(std::string_view text) const override {
    return text.find(from_) == std::string_view::npos;
  }
  void apply(std::string& text) const override { replace_all(text, from_, to_); }

 private:
  std::string from_;
  std::string to_;
};

class ReplacePattern : public Normalizer {
 public:
  ReplacePattern(Pattern from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  bool leaves(std::string_view) const override { return false; }
  void apply(std::string& text) const override {
    std::string out;
    size_t done = 0;
    from_.for_each_match(text, [&](size_t begin, size_t end) {
      out.append(text, done, begin - done);
      out += to_;
      done = end;
    });
    out.append(text, done);
    text = std::move(out);
  }

 private:
  Pattern from_;
  std::string to_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  bool leaves(std::string_view text) const override {
    return std::all_of(steps_.begin(), steps_.end(),
                       [&](const auto& step) { return step->leaves(text); });
  }
  void apply(std::string& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_unicode_form(UnicodeForm form) {
  return std::make_unique<Form>(form);
}
std::unique_ptr<Normalizer> make_lowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<Normalizer> make_strip_accents() { return std::make_unique<StripAccents>(); }
std::unique_ptr<Normalizer> make_strip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> make_prepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> make_replace_string(std::string from, std::string to) {
  return std::make_unique<ReplaceString>(std::move(from), std::move(to));
}
std::unique_ptr<Normalizer> make_replace_pattern(Pattern from, std::string to) {
  return std::make_unique<ReplacePattern>(std::move(from), std::move(to));
}
std::unique_ptr<Normalizer> make_normalizer_sequence(
    std::vector<std::unique_ptr<Normalizer>> steps) {
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace zipage
