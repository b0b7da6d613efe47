#include "tokenizer/pattern_tree.h"

#include <utility>

#include "tokenizer/utf8.h"

namespace zipage {
namespace {

struct Unsupported {};

constexpr int kMaxDepth = 20;
constexpr int kMaxRepeats = 20;

bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

CodePointSet one(char32_t c) { return {{c, c}}; }

// `c` in both cases. Two letters have a third form: U+017F is an s, U+212A a k.
CodePointSet any_case(char32_t c) {
  if (c >= 0x80) throw Unsupported();
  if (!is_letter(c)) return one(c);
  const char32_t lower = c | 0x20;
  CodePointSet set = {{lower, lower}, {lower - 0x20, lower - 0x20}};
  if (lower == 's') set.add(0x17F, 0x17F);
  if (lower == 'k') set.add(0x212A, 0x212A);
  return set;
}

PatternNode set_node(CodePointSet set) {
  return {.kind = PatternNode::Kind::kSet, .set = std::move(set), .children = {}};
}
PatternNode before_node(CodePointSet set) {
  return {.kind = PatternNode::Kind::kBefore, .set = std::move(set), .children = {}};
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  PatternNode parse() {
    PatternNode node = choice();
    if (!done()) throw Unsupported();  // a ')' too many
    return node;
  }

 private:
  bool done() const { return at_ == text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  void expect(std::string_view what) {
    if (!take(what)) throw Unsupported();
  }
  char32_t next() {
    if (done()) throw Unsupported();
    const Utf8Step step = read_utf8(text_, at_);
    if (!step.valid) throw Unsupported();
    at_ += step.length;
    return step.code_point;
  }

  PatternNode choice() {
    if (++depth_ > kMaxDepth) throw Unsupported();
    PatternNode node;
    node.kind = PatternNode::Kind::kChoice;
    do {
      node.children.push_back(sequence());
    } while (take("|"));
    --depth_;
    return node;
  }

  PatternNode sequence() {
    PatternNode node;
    while (!done() && !sees("|") && !sees(")")) node.children.push_back(repeated(item()));
    return node;
  }

  PatternNode item() {
    if (take("(?:")) return group(any_case_);
    if (take("(?i:")) return group(true);
    if (take("(?!")) {
      CodePointSet set = take("[") ? bracket() : single();
      expect(")");
      return before_node(set.complement());
    }
    if (take("$")) return before_node(one('\n'));  // the end of a line
    if (take("[")) return set_node(bracket());
    for (const char* other : {"(", "^", ".", "?", "*", "+", "{"}) {
      if (sees(other)) throw Unsupported();
    }
    return set_node(single());
  }

  PatternNode group(bool any_case) {
    const bool outer = std::exchange(any_case_, any_case);
    PatternNode node = choice();
    any_case_ = outer;
    expect(")");
    return node;
  }

  PatternNode repeated(PatternNode child) {
    PatternNode node;
    node.kind = PatternNode::Kind::kRepeat;
    if (take("?")) {
      node.max = 1;
    } else if (take("+")) {
      node.min = 1;
    } else if (take("{")) {
      node.min = number();
      node.max = node.min;
      if (take(",")) node.max = sees("}") ? PatternNode::kNoMax : number();
      expect("}");
      if (node.max != PatternNode::kNoMax && node.max < node.min) throw Unsupported();
    } else if (!take("*")) {
      return child;
    }
    if (sees("?") || sees("+") || sees("*") || sees("{")) throw Unsupported();
    if (child.kind == PatternNode::Kind::kBefore) throw Unsupported();
    node.children.push_back(std::move(child));
    return node;
  }

  int number() {
    int value = 0;
    size_t digits = 0;
    for (; !done() && is_digit(static_cast<uint8_t>(text_[at_])); ++at_, ++digits) {
      value = 10 * value + (text_[at_] - '0');
      if (value > kMaxRepeats) throw Unsupported();
    }
    if (digits == 0) throw Unsupported();
    return value;
  }

  // A character, or an escape.
  CodePointSet single() {
    if (take("\\")) return escape();
    const char32_t c = next();
    return any_case_ ? any_case(c) : one(c);
  }

  // What follows a backslash.
  CodePointSet escape() {
    const char32_t c = next();
    if (any_case_ && (c == 'p' || c == 'P' || c == 'x')) throw Unsupported();
    switch (c) {
      case 's':
        return white_space_set();
      case 'S':
        return white_space_set().complement();
      case 'd':
        return property("Nd");
      case 'p':
        return property();
      case 'P':
        return property().complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'x':
        return one(hexadecimal());
      default:
        if (c >= 0x80 || is_letter(c) || is_digit(c)) throw Unsupported();
        return one(c);
    }
  }

  CodePointSet property() {
    expect("{");
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) throw Unsupported();
    CodePointSet set = property(text_.substr(at_, end - at_));
    at_ = end + 1;
    return set;
  }
  CodePointSet property(std::string_view name) {
    auto set = find_general_category(name);
    if (!set) throw Unsupported();
    return *std::move(set);
  }

  // "{3042}", or two digits
  char32_t hexadecimal() {
    const bool braces = take("{");
    char32_t value = 0;
    for (int i = 0; braces ? !take("}") : i < 2; ++i) {
      const char32_t c = next();
      if (!is_digit(c) && !(is_letter(c) && (c | 0x20) <= 'f')) throw Unsupported();
      value = 16 * value + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      if (value > kMaxCodePoint) throw Unsupported();
    }
    return value;
  }

  // What follows a '['.
  CodePointSet bracket() {
    const bool inverted = take("^");
    CodePointSet set;
    bool first = true;
    while (first || !sees("]")) {
      if (sees("[") || sees("&&")) throw Unsupported();
      CodePointSet item = first && take("]") ? one(']') : single();
      first = false;
      if (sees("-") && !sees("-]")) {
        expect("-");
        const CodePointSet last = single();
        if (any_case_ || !is_one(item) || !is_one(last)) throw Unsupported();
        if (last.ranges()[0].first < item.ranges()[0].first) throw Unsupported();
        item = {{item.ranges()[0].first, last.ranges()[0].first}};
      }
      set.add(item);
    }
    expect("]");
    return inverted ? set.complement() : set;
  }
  static bool is_one(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool any_case_ = false;
};

}  // namespace

std::optional<PatternNode> parse_pattern(std::string_view pattern) {
  try {
    return Parser(pattern).parse();
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

}  // namespace zipage
