#include "tokenizer/jinja/text.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <unordered_set>
#include <utf8proc.h>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace zipage::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

char32_t upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

void append_upper(char32_t c, std::string& out) {
  if (c == 0xDF) {
    out += "SS";  // the common one of the characters whose upper case is two
  } else {
    append_utf8(upper(c), out);
  }
}

bool is_lower_letter(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || (upper(c) != c && lower(c) == c);
}

bool is_upper_letter(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (lower(c) != c && upper(c) == c);
}

template <typename Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    visit(step.code_point, text.substr(i, step.length));
    i += step.length;
  }
}

}  // namespace

void fail_undefined(const Value& value) {
  const std::string why = value.identity() != nullptr ? value.get<StringObject>().text : "";
  fail_invalid("{}", why.empty() ? "the value is undefined" : why);
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

std::string_view characters(std::string_view text, int64_t begin, int64_t end) {
  const auto advance = [&](size_t from, int64_t count) {
    while (count > 0 && from < text.size()) {
      from = std::min(from + utf8_length(text[from]), text.size());
      --count;
    }
    return from;
  };
  const size_t first = advance(0, begin);
  return text.substr(first, advance(first, end - begin) - first);
}

int64_t num_characters(const Value& text) {
  const auto& object = text.get<StringObject>();
  return object.is_ascii ? static_cast<int64_t>(object.text.size()) : num_characters(object.text);
}

std::string_view characters(const Value& text, int64_t begin, int64_t end) {
  const auto& object = text.get<StringObject>();
  if (!object.is_ascii) return characters(object.text, begin, end);
  return std::string_view(object.text)
      .substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

std::vector<Value> split_characters(std::string_view text) {
  std::vector<Value> out;
  for_each_character(text, [&](char32_t, std::string_view bytes) {
    out.push_back(Value::string(std::string(bytes)));
  });
  return out;
}

size_t find_text(Budget& budget, std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  budget.read(wanted.size());
  if (wanted.empty()) return from;
  const void* const found =
      ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  const size_t at = found == nullptr
                        ? std::string_view::npos
                        : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  budget.read(std::min(at, text.size()) - from);
  return at;
}

// Knuth, Morris and Pratt from the end.
size_t find_last_text(Budget& budget, std::string_view text, std::string_view wanted) {
  const size_t length = wanted.size();
  if (length > text.size()) return std::string_view::npos;
  if (length < 16) return text.rfind(wanted);
  budget.make(length * sizeof(uint32_t));
  budget.work((text.size() + length) / 32);
  const auto wanted_at = [&](size_t i) { return wanted[length - 1 - i]; };
  std::vector<uint32_t> longest(length, 0);
  for (size_t i = 1, matched = 0; i < length; ++i) {
    while (matched > 0 && wanted_at(i) != wanted_at(matched)) matched = longest[matched - 1];
    if (wanted_at(i) == wanted_at(matched)) ++matched;
    longest[i] = static_cast<uint32_t>(matched);
  }
  for (size_t i = 0, matched = 0; i < text.size(); ++i) {
    const char c = text[text.size() - 1 - i];
    while (matched > 0 && c != wanted_at(matched)) matched = longest[matched - 1];
    if (c == wanted_at(matched)) ++matched;
    if (matched == length) return text.size() - 1 - i;
  }
  return std::string_view::npos;
}

std::string_view strip(std::string_view text,
                       bool left,
                       bool right,
                       std::optional<std::string_view> set) {
  std::unordered_set<std::string_view> characters_of_set;
  if (set) {
    for_each_character(*set,
                       [&](char32_t, std::string_view bytes) { characters_of_set.insert(bytes); });
  }
  const auto goes = [&](std::string_view character) {
    return set ? characters_of_set.contains(character)
               : is_space(read_utf8(character, 0).code_point);
  };
  while (left && !text.empty()) {
    const size_t length = read_utf8(text, 0).length;
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!goes(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
         c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_numeric(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view) {
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else {
      append_utf8(lower(c), out);
    }
  });
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view) { append_upper(c, out); });
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = read_utf8(text, 0).length;
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_character(text, [&](char32_t c, std::string_view) {
    const bool cased = upper(c) != c || lower(c) != c;
    if (cased && !in_word) {
      append_upper(c, out);
    } else {
      append_utf8(lower(c), out);
    }
    in_word = cased;
  });
  return out;
}

bool is_lower(std::string_view text) {
  bool any = false;
  bool all = true;
  for_each_character(text, [&](char32_t c, std::string_view) {
    any |= is_lower_letter(c);
    all &= !is_upper_letter(c);
  });
  return any && all;
}

bool is_upper(std::string_view text) {
  bool any = false;
  bool all = true;
  for_each_character(text, [&](char32_t c, std::string_view) {
    any |= is_upper_letter(c);
    all &= !is_lower_letter(c);
  });
  return any && all;
}

std::string string_repr(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      (out += '\\') += bytes;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += bytes;
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  });
  out += quote;
  return out;
}

void append_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    const auto code = static_cast<uint32_t>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        return;
      case '\\':
        out += "\\\\";
        return;
      case '\n':
        out += "\\n";
        return;
      case '\r':
        out += "\\r";
        return;
      case '\t':
        out += "\\t";
        return;
      case '\b':
        out += "\\b";
        return;
      case '\f':
        out += "\\f";
        return;
      default:
        break;
    }
    if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
      out += fmt::format("\\u{:04x}", code);
    } else if (ensure_ascii && code >= 0x10000) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                         0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      out += bytes;
    }
  });
  out += '"';
}

}  // namespace zipage::jinja
