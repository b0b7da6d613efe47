#include <algorithm>
#include <array>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace zipage::jinja {
namespace {

using Method = Value (*)(Interpreter&, const std::string& self, CallArgs& args);

// A set of characters, of whole ones: "strip" by code points.
std::string_view strip_by(std::string_view text, bool left, bool right, const CallArgs& call_args) {
  const Arguments args("strip", call_args, {"chars"});
  if (!args.has(0) || args.get(0).is_none()) return strip(text, left, right);
  const std::string set = args.text(0);
  return strip(text, left, right, set);
}

template <bool kLeft, bool kRight>
Value strip_method(Interpreter& interpreter, const std::string& self, CallArgs& args) {
  return interpreter.new_string(std::string(strip_by(self, kLeft, kRight, args)));
}

Value split_space(Interpreter& interpreter, std::string_view text, int64_t limit, bool from_right) {
  std::vector<Value> out;
  text = strip(text, !from_right, from_right);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      // The rest keeps its inner white space, and that at its far end.
      out.push_back(interpreter.new_string(std::string(text)));
      text = {};
      break;
    }
    size_t begin = 0;
    size_t end = text.size();
    if (from_right) {
      begin = text.size();
      while (begin > 0) {
        size_t before = begin - 1;
        while (before > 0 && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
        if (is_space(read_utf8(text, before).code_point)) break;
        begin = before;
      }
      out.push_back(interpreter.new_string(std::string(text.substr(begin))));
      text = strip(text.substr(0, begin), false, true);
    } else {
      end = 0;
      while (end < text.size()) {
        const Utf8Step step = read_utf8(text, end);
        if (is_space(step.code_point)) break;
        end += step.length;
      }
      out.push_back(interpreter.new_string(std::string(text.substr(0, end))));
      text = strip(text.substr(end), true, false);
    }
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return interpreter.new_list(std::move(out));
}

template <bool kFromRight>
Value split(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("split", call_args, {"sep", "maxsplit"});
  const int64_t limit = args.integer(1, -1);
  if (!args.has(0) || args.get(0).is_none())
    return split_space(interpreter, self, limit, kFromRight);
  const std::string separator = args.text(0);
  if (separator.empty()) fail_invalid("empty separator");
  std::vector<Value> out;
  std::string_view text = self;
  Budget& budget = interpreter.budget();
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t found =
        kFromRight ? find_last_text(budget, text, separator) : find_text(budget, text, separator);
    if (found == std::string_view::npos) break;
    const size_t after = found + separator.size();
    out.push_back(interpreter.new_string(
        std::string(kFromRight ? text.substr(after) : text.substr(0, found))));
    text = kFromRight ? text.substr(0, found) : text.substr(after);
  }
  out.push_back(interpreter.new_string(std::string(text)));
  if (kFromRight) std::reverse(out.begin(), out.end());
  return interpreter.new_list(std::move(out));
}

Value splitlines(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("splitlines", call_args, {"keepends"});
  const bool keep = args.boolean(0, false);
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t i = 0; i < self.size();) {
    const Utf8Step step = read_utf8(self, i);
    const char32_t c = step.code_point;
    size_t length = step.length;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) {
      i += length;
      continue;
    }
    if (c == '\r' && i + 1 < self.size() && self[i + 1] == '\n') length = 2;
    out.push_back(interpreter.new_string(self.substr(begin, i - begin + (keep ? length : 0))));
    i += length;
    begin = i;
  }
  if (begin < self.size()) out.push_back(interpreter.new_string(self.substr(begin)));
  return interpreter.new_list(std::move(out));
}

template <bool kAtStart>
Value starts_or_ends_with(Interpreter&, const std::string& self, CallArgs& call_args) {
  const Arguments args(kAtStart ? "startswith" : "endswith", call_args, {"affix", "start", "end"});
  std::string_view text = self;
  const int64_t size = num_characters(self);
  const auto bound = [&](size_t i, int64_t fallback) {
    int64_t value = args.has(i) && !args.get(i).is_none() ? args.integer(i, fallback) : fallback;
    if (value < 0) value += size;
    return std::clamp<int64_t>(value, 0, size);
  };
  if (args.has(1)) text = characters(self, bound(1, 0), std::max(bound(1, 0), bound(2, size)));
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) fail_invalid("startswith() needs a string or a tuple of strings");
    return kAtStart ? text.starts_with(affix.text()) : text.ends_with(affix.text());
  };
  const Value affix = args.required(0);
  if (affix.is_undefined()) fail_undefined(affix);
  if (affix.is(Kind::kTuple)) {
    return Value::boolean(std::any_of(affix.items().begin(), affix.items().end(), matches));
  }
  return Value::boolean(matches(affix));
}

Value replace(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("replace", call_args, {"old", "new", "count"});
  const std::string from = args.text(0);
  const std::string to = args.text(1);
  int64_t left = args.integer(2, -1);
  std::string out;
  size_t done = 0;
  Budget& budget = interpreter.budget();
  while (left != 0) {
    size_t found = from.empty() ? done : find_text(budget, self, from, done);
    if (from.empty()) {
      // An empty text is found before every character and at the end.
      budget.make(to.size() + 1);
      out += to;
      if (done >= self.size()) break;
      found = done + read_utf8(self, done).length;
      out.append(self, done, found - done);
      done = found;
    } else {
      if (found == std::string::npos) break;
      budget.make(to.size() + 1);
      out.append(self, done, found - done);
      out += to;
      done = found + from.size();
    }
    if (left > 0) --left;
  }
  out.append(self, done);
  return interpreter.new_string(std::move(out));
}

template <bool kFromRight, bool kMustFind>
Value find(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args(kFromRight ? "rfind" : "find", call_args, {"sub", "start", "end"});
  const std::string wanted = args.text(0);
  const int64_t size = num_characters(self);
  const auto bound = [&](size_t i, int64_t fallback) {
    int64_t value = args.has(i) && !args.get(i).is_none() ? args.integer(i, fallback) : fallback;
    if (value < 0) value += size;
    return std::clamp<int64_t>(value, 0, size);
  };
  const int64_t start = bound(1, 0);
  const std::string_view text = characters(self, start, std::max(start, bound(2, size)));
  Budget& budget = interpreter.budget();
  const size_t found =
      kFromRight ? find_last_text(budget, text, wanted) : find_text(budget, text, wanted);
  if (found == std::string_view::npos) {
    if (kMustFind) fail_invalid("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(start + num_characters(text.substr(0, found)));
}

Value count(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("count", call_args, {"sub"});
  const std::string wanted = args.text(0);
  if (wanted.empty()) return Value::integer(num_characters(self) + 1);
  int64_t total = 0;
  for (size_t at = find_text(interpreter.budget(), self, wanted); at != std::string_view::npos;
       at = find_text(interpreter.budget(), self, wanted, at + wanted.size())) {
    interpreter.budget().work(1);
    ++total;
  }
  return Value::integer(total);
}

Value join(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("join", call_args, {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : interpreter.iterate(args.required(0))) {
    if (!item.is_string()) {
      fail_invalid("sequence item: expected str instance, {} found", type_name(item));
    }
    interpreter.budget().make(self.size() + item.text().size());
    if (!first) out += self;
    first = false;
    out += item.text();
  }
  return interpreter.new_string(std::move(out));
}

template <bool kFromRight>
Value partition(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("partition", call_args, {"sep"});
  const std::string separator = args.text(0);
  if (separator.empty()) fail_invalid("empty separator");
  const size_t found = kFromRight ? find_last_text(interpreter.budget(), self, separator)
                                  : find_text(interpreter.budget(), self, separator);
  const Value none = interpreter.new_string("");
  if (found == std::string_view::npos) {
    const Value whole = interpreter.new_string(self);
    return interpreter.new_tuple(kFromRight ? std::vector<Value>{none, none, whole}
                                            : std::vector<Value>{whole, none, none});
  }
  return interpreter.new_tuple({interpreter.new_string(self.substr(0, found)),
                                interpreter.new_string(separator),
                                interpreter.new_string(self.substr(found + separator.size()))});
}

// ljust, rjust and center: how much of the padding goes to the left, of 0, 1 and "about half".
template <int kSide>
Value justify(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("justify", call_args, {"width", "fillchar"});
  const int64_t width = args.integer(0, 0);
  const std::string fill = args.text(1, " ");
  if (num_characters(fill) != 1) fail_invalid("the fill character must be one character");
  const int64_t missing = std::max<int64_t>(0, width - num_characters(self));
  interpreter.budget().make(static_cast<size_t>(std::min<int64_t>(missing, int64_t{1} << 50)) *
                            fill.size());
  // As CPython rounds it.
  const int64_t left = kSide == 0 ? 0 : kSide == 1 ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return interpreter.new_string(std::move(out));
}

Value zfill(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("zfill", call_args, {"width"});
  const int64_t missing = std::max<int64_t>(0, args.integer(0, 0) - num_characters(self));
  interpreter.budget().make(static_cast<size_t>(missing));
  const size_t sign = self.starts_with('-') || self.starts_with('+') ? 1 : 0;
  return interpreter.new_string(self.substr(0, sign) +
                                std::string(static_cast<size_t>(missing), '0') + self.substr(sign));
}

template <bool kPrefix>
Value remove_affix(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("removeprefix", call_args, {"affix"});
  const std::string affix = args.text(0);
  if (kPrefix && self.starts_with(affix)) return interpreter.new_string(self.substr(affix.size()));
  if (!kPrefix && !affix.empty() && self.ends_with(affix)) {
    return interpreter.new_string(self.substr(0, self.size() - affix.size()));
  }
  return interpreter.new_string(self);
}

template <std::string (*kChange)(std::string_view)>
Value changed(Interpreter& interpreter, const std::string& self, CallArgs&) {
  return interpreter.new_string(kChange(self));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const std::string_view character = text.substr(i, step.length);
    out += is_upper(character) ? to_lower(character) : to_upper(character);
    i += step.length;
  }
  return out;
}

template <bool (*kHolds)(std::string_view)>
Value whole(Interpreter&, const std::string& self, CallArgs&) {
  return Value::boolean(kHolds(self));
}

template <bool (*kHolds)(char32_t)>
Value every(Interpreter&, const std::string& self, CallArgs&) {
  if (self.empty()) return Value::boolean(false);
  for (size_t i = 0; i < self.size();) {
    const Utf8Step step = read_utf8(self, i);
    if (!kHolds(step.code_point)) return Value::boolean(false);
    i += step.length;
  }
  return Value::boolean(true);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_digit(c) || is_numeric(c); }
bool is_ascii_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}
bool is_title(std::string_view text) {
  return title(text) == text && (is_upper(text) || to_lower(text) != text);
}

Value expandtabs(Interpreter& interpreter, const std::string& self, CallArgs& call_args) {
  const Arguments args("expandtabs", call_args, {"tabsize"});
  const int64_t size = std::clamp<int64_t>(args.integer(0, 8), 0, 1000);
  std::string out;
  int64_t column = 0;
  for (size_t i = 0; i < self.size();) {
    const size_t length = read_utf8(self, i).length;
    if (self[i] == '\t') {
      const int64_t count = size == 0 ? 0 : size - column % size;
      interpreter.budget().make(static_cast<size_t>(count));
      out.append(static_cast<size_t>(count), ' ');
      column += count;
    } else {
      out.append(self, i, length);
      column = self[i] == '\n' || self[i] == '\r' ? 0 : column + 1;
    }
    i += length;
  }
  return interpreter.new_string(std::move(out));
}

Value format(Interpreter& interpreter, const std::string& self, CallArgs& args) {
  return interpreter.new_string(brace_format(interpreter, self, args));
}

constexpr std::array<std::pair<std::string_view, Method>, 41> kMethods = {{
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends_with<true>},
    {"endswith", starts_or_ends_with<false>},
    {"replace", replace},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"join", join},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"ljust", justify<0>},
    {"rjust", justify<1>},
    {"center", justify<2>},
    {"zfill", zfill},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"lower", changed<to_lower>},
    {"casefold", changed<to_lower>},
    {"upper", changed<to_upper>},
    {"capitalize", changed<capitalize>},
    {"title", changed<title>},
    {"swapcase", changed<swap_case>},
    {"islower", whole<is_lower>},
    {"isupper", whole<is_upper>},
    {"isascii", whole<is_ascii_text>},
    {"istitle", whole<is_title>},
    {"isalpha", every<is_alpha>},
    {"isalnum", every<is_alnum>},
    {"isdigit", every<is_digit>},
    {"isnumeric", every<is_numeric>},
    {"isspace", every<is_space>},
    {"isprintable", every<is_printable>},
    {"expandtabs", expandtabs},
    {"format", format},
}};

}  // namespace

Value find_string_method(const Value& self, const std::string& name) {
  for (const auto& [known, method] : kMethods) {
    if (known == name) {
      return Value::callable(
          name,
          [self, function = method](Interpreter& interpreter, CallArgs& args) {
            return function(interpreter, self.text(), args);
          },
          self);
    }
  }
  return Value();
}

}  // namespace zipage::jinja
