#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "tokenizer/jinja/parser.h"

namespace zipage::jinja {

namespace {
constexpr int kMaxExpressionDepth = 200;
}

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto out = std::make_unique<Expr>();
  out->kind = kind;
  out->line = line;
  return out;
}

ExprPtr Parser::grown(ExprPtr node) const {
  const auto take = [&](const ExprPtr& child) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  };
  for (const ExprPtr& child : node->args) take(child);
  for (const auto& [name, child] : node->named) take(child);
  take(node->star);
  take(node->double_star);
  if (node->depth > kMaxExpressionDepth) fail_at(node->line, "an expression is nested too deeply");
  return node;
}

ExprPtr Parser::binary(std::string op, int line, ExprPtr left, ExprPtr right) const {
  ExprPtr out = make(ExprKind::kBinary, line);
  out->text = std::move(op);
  out->args.push_back(std::move(left));
  out->args.push_back(std::move(right));
  return grown(std::move(out));
}

ExprPtr Parser::parse_tuple(bool with_condition, std::string_view end_name) {
  const int line = peek().line;
  const auto one = [&] { return with_condition ? parse_expression() : parse_or(); };
  const auto at_end = [&] {
    const Token& token = peek();
    return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
           is_operator(")") || (!end_name.empty() && is_name(end_name));
  };
  if (at_end()) unexpected("an expression");
  ExprPtr first = one();
  if (!is_operator(",")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->args.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_end()) break;
    tuple->args.push_back(one());
  }
  return grown(std::move(tuple));
}

ExprPtr Parser::parse_expression() {
  const Nesting nesting(*this);
  ExprPtr node = parse_or();
  while (is_name("if")) {
    const int line = next().line;
    ExprPtr out = make(ExprKind::kConditional, line);
    out->args.push_back(std::move(node));
    out->args.push_back(parse_or());
    out->args.push_back(skip_name("else") ? parse_expression() : nullptr);
    node = grown(std::move(out));
  }
  return node;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    const int line = next().line;
    left = binary("or", line, std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    const int line = next().line;
    left = binary("and", line, std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  ExprPtr out = make(ExprKind::kUnary, next().line);
  out->text = "not";
  out->args.push_back(parse_not());
  return grown(std::move(out));
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr out;
  for (;;) {
    std::string op;
    if (peek().kind == TokenKind::kOperator &&
        (peek().text == "==" || peek().text == "!=" || peek().text == "<" || peek().text == "<=" ||
         peek().text == ">" || peek().text == ">=")) {
      op = next().text;
    } else if (is_name("in")) {
      next();
      op = "in";
    } else if (is_name("not") && peek(1).kind == TokenKind::kName && peek(1).text == "in") {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    if (out == nullptr) {
      out = make(ExprKind::kCompare, first->line);
      out->args.push_back(std::move(first));
    }
    out->ops.push_back(std::move(op));
    out->args.push_back(parse_sum());
  }
  return out == nullptr ? std::move(first) : grown(std::move(out));
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const Token op = next();
    left = binary(op.text, op.line, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr left = parse_product();
  while (is_operator("~")) {
    const Token op = next();
    left = binary(op.text, op.line, std::move(left), parse_product());
  }
  return left;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token op = next();
    left = binary(op.text, op.line, std::move(left), parse_power());
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_operator("**")) {
    const Token op = next();
    left = binary(op.text, op.line, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExprPtr node;
  if (is_operator("-") || is_operator("+")) {
    const Token op = next();
    node = make(ExprKind::kUnary, op.line);
    node->text = op.text;
    node->args.push_back(parse_unary(false));
    node = grown(std::move(node));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary() {
  const Token token = peek();
  ExprPtr out = make(ExprKind::kLiteral, token.line);
  switch (token.kind) {
    case TokenKind::kName:
      next();
      if (token.text == "true" || token.text == "True") {
        out->value = Value::boolean(true);
      } else if (token.text == "false" || token.text == "False") {
        out->value = Value::boolean(false);
      } else if (token.text == "none" || token.text == "None") {
        out->value = Value::none();
      } else {
        out->kind = ExprKind::kName;
        out->text = token.text;
        if (macro_ != nullptr) {
          macro_->uses_varargs |= token.text == "varargs";
          macro_->uses_kwargs |= token.text == "kwargs";
          macro_->uses_caller |= token.text == "caller";
        }
      }
      return out;
    case TokenKind::kString: {
      std::string text;
      while (peek().kind == TokenKind::kString) text += next().text;
      out->value = Value::string(std::move(text));
      return out;
    }
    case TokenKind::kInteger: {
      int64_t value = 0;
      const auto parsed =
          std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      if (parsed.ec != std::errc()) fail_at(token.line, token.text + " does not fit 64 bits");
      out->value = Value::integer(value);
      next();
      return out;
    }
    case TokenKind::kFloat: {
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      out->value = Value::floating(value);
      next();
      return out;
    }
    case TokenKind::kOperator:
      break;
    default:
      unexpected("an expression");
  }
  if (is_operator("(")) return parse_parenthesized();
  const bool is_list = is_operator("[");
  if (!is_list && !is_operator("{")) unexpected("an expression");
  next();
  const std::string_view end = is_list ? "]" : "}";
  out->kind = is_list ? ExprKind::kList : ExprKind::kDict;
  while (!skip_operator(end)) {
    if (!out->args.empty()) {
      expect_operator(",");
      if (skip_operator(end)) break;
    }
    out->args.push_back(parse_expression());
    if (!is_list) {
      expect_operator(":");
      out->args.push_back(parse_expression());
    }
  }
  return grown(std::move(out));
}

ExprPtr Parser::parse_parenthesized() {
  const int line = next().line;
  if (skip_operator(")")) return make(ExprKind::kTuple, line);
  ExprPtr inner = parse_tuple();
  expect_operator(")");
  return inner;
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  for (;;) {
    if (is_operator(".") || is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters(ExprPtr node) {
  for (;;) {
    if (is_operator("|")) {
      node = parse_filter_chain(std::move(node), false);
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

// "| name(args) | name ..."; with `start_inline` the first bar is missing.
ExprPtr Parser::parse_filter_chain(ExprPtr node, bool start_inline) {
  while (start_inline || is_operator("|")) {
    if (!start_inline) next();
    start_inline = false;
    ExprPtr out = make(ExprKind::kFilter, peek().line);
    out->text = expect_name();
    while (skip_operator(".")) out->text += "." + expect_name();
    out->args.push_back(std::move(node));
    if (is_operator("(")) parse_arguments(*out);
    node = grown(std::move(out));
  }
  return node;
}

ExprPtr Parser::parse_test(ExprPtr node) {
  const int line = next().line;
  const bool negated = skip_name("not");
  ExprPtr out = make(ExprKind::kTest, line);
  out->text = expect_name();
  while (skip_operator(".")) out->text += "." + expect_name();
  out->args.push_back(std::move(node));
  const Token& token = peek();
  if (is_operator("(")) {
    parse_arguments(*out);
  } else if ((token.kind == TokenKind::kName && token.text != "else" && token.text != "or" &&
              token.text != "and" && token.text != "is" && token.text != "if" &&
              token.text != "in" && token.text != "not") ||
             token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
             token.kind == TokenKind::kFloat || is_operator("[") || is_operator("{")) {
    const Nesting nesting(*this);
    out->args.push_back(parse_postfix(parse_primary()));
  }
  out = grown(std::move(out));
  if (!negated) return out;
  ExprPtr inverse = make(ExprKind::kUnary, line);
  inverse->text = "not";
  inverse->args.push_back(std::move(out));
  return grown(std::move(inverse));
}

ExprPtr Parser::parse_call(ExprPtr node) {
  ExprPtr out = make(ExprKind::kCall, peek().line);
  out->args.push_back(std::move(node));
  parse_arguments(*out);
  return grown(std::move(out));
}

void Parser::parse_arguments(Expr& call) {
  expect_operator("(");
  bool first = true;
  while (!skip_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (skip_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      if (call.star != nullptr) fail_at(peek().line, "a call has two *arguments");
      call.star = parse_expression();
    } else if (skip_operator("**")) {
      if (call.double_star != nullptr) fail_at(peek().line, "a call has two **arguments");
      call.double_star = parse_expression();
    } else if (peek().kind == TokenKind::kName && peek(1).kind == TokenKind::kOperator &&
               peek(1).text == "=") {
      std::string name = expect_name();
      next();
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!call.named.empty() || call.double_star != nullptr) {
        fail_at(peek().line, "a positional argument follows a named one");
      }
      call.args.push_back(parse_expression());
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr node) {
  const Token token = next();
  if (token.text == ".") {
    if (peek().kind == TokenKind::kInteger) {
      ExprPtr out = make(ExprKind::kItem, token.line);
      out->args.push_back(std::move(node));
      out->args.push_back(parse_primary());
      return grown(std::move(out));
    }
    ExprPtr out = make(ExprKind::kAttribute, token.line);
    out->text = expect_name();
    out->args.push_back(std::move(node));
    return grown(std::move(out));
  }
  ExprPtr index = parse_slice_or_index();
  if (is_operator(",")) {
    ExprPtr tuple = make(ExprKind::kTuple, token.line);
    tuple->args.push_back(std::move(index));
    while (skip_operator(",")) tuple->args.push_back(parse_slice_or_index());
    for (const ExprPtr& part : tuple->args) {  // jinja2 parses it, but makes no valid Python of it
      if (part->kind == ExprKind::kSlice) fail_at(token.line, "a slice inside a tuple");
    }
    index = grown(std::move(tuple));
  }
  expect_operator("]");
  if (index->kind == ExprKind::kSlice) {
    index->args.front() = std::move(node);
    return grown(std::move(index));
  }
  ExprPtr out = make(ExprKind::kItem, token.line);
  out->args.push_back(std::move(node));
  out->args.push_back(std::move(index));
  return grown(std::move(out));
}

ExprPtr Parser::parse_slice_or_index() {
  const int line = peek().line;
  ExprPtr start;
  if (!is_operator(":")) {
    start = parse_expression();
    if (!is_operator(":")) return start;
  }
  ExprPtr out = make(ExprKind::kSlice, line);
  out->args.resize(4);
  out->args[1] = std::move(start);
  for (size_t part = 2; part < 4 && skip_operator(":"); ++part) {
    if (!is_operator(":") && !is_operator("]") && !is_operator(",")) {
      out->args[part] = parse_expression();
    }
  }
  return out;
}

}  // namespace zipage::jinja
