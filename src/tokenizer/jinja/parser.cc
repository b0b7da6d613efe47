#include "tokenizer/jinja/parser.h"

#include <algorithm>

#include "base/error.h"

namespace zipage::jinja {

Body parse_template(std::string_view source) { return Parser(tokenize(source)).parse(); }

Body Parser::parse() {
  Body body = parse_until({});
  if (peek().kind != TokenKind::kEnd) {
    fail_at(peek().line, "unexpected tag '" + peek(1).text + "'");
  }
  return body;
}

void Parser::fail_at(int line, const std::string& what) const {
  fail_invalid("line {}: {}", line, what);
}

void Parser::unexpected(const char* wanted) const {
  const Token& token = peek();
  std::string found = "'" + token.text + "'";
  switch (token.kind) {
    case TokenKind::kEnd:
      found = "the end of the template";
      break;
    case TokenKind::kBlockEnd:
      found = "'%}'";
      break;
    case TokenKind::kVariableEnd:
      found = "'}}'";
      break;
    default:
      break;
  }
  fail_at(token.line, "expected " + std::string(wanted) + ", found " + found);
}

bool Parser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  next();
  return true;
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) unexpected(("'" + std::string(text) + "'").c_str());
}

std::string Parser::expect_name() {
  if (peek().kind != TokenKind::kName) unexpected("a name");
  return next().text;
}

void Parser::expect_end_of_block() {
  if (peek().kind != TokenKind::kBlockEnd) unexpected("the end of the block");
  next();
}

// Stops in front of a block tag whose name is among `ends`, or at the end.
Body Parser::parse_until(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Body body;
  for (;;) {
    const Token& token = peek();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() != 0) {
        fail_at(token.line,
                "a block has no end: {% " + std::string(*(ends.end() - 1)) + " %} is missing");
      }
      return body;
    }
    if (token.kind == TokenKind::kData) {
      auto data = std::make_unique<Stmt>();
      data->kind = StmtKind::kData;
      data->line = token.line;
      data->text = next().text;
      body.push_back(std::move(data));
    } else if (token.kind == TokenKind::kVariableBegin) {
      auto print = std::make_unique<Stmt>();
      print->kind = StmtKind::kPrint;
      print->line = next().line;
      print->expr = parse_tuple();
      if (peek().kind != TokenKind::kVariableEnd) unexpected("'}}'");
      next();
      body.push_back(std::move(print));
    } else {
      const Token& name = peek(1);
      if (name.kind == TokenKind::kName &&
          std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
        return body;
      }
      if (ends.size() == 0 && name.kind == TokenKind::kName &&
          (name.text.starts_with("end") || name.text == "else" || name.text == "elif")) {
        return body;
      }
      next();
      if (StmtPtr statement = parse_statement()) body.push_back(std::move(statement));
    }
  }
}

// The body up to {% end %}, which is taken.
Body Parser::parse_block_body(std::string_view end) {
  Body body = parse_until({end});
  next();
  next();
  expect_end_of_block();
  return body;
}

StmtPtr Parser::parse_statement() {
  const int line = peek().line;
  const std::string name = expect_name();
  StmtPtr out;
  if (name == "for") {
    out = parse_for();
  } else if (name == "if") {
    out = parse_if();
  } else if (name == "set") {
    out = parse_set();
  } else if (name == "macro") {
    out = parse_macro();
  } else if (name == "call") {
    out = parse_call_block();
  } else if (name == "filter") {
    out = parse_filter_block();
  } else if (name == "with") {
    out = parse_with();
  } else if (name == "generation") {
    expect_end_of_block();
    out = std::make_unique<Stmt>();
    out->kind = StmtKind::kScope;
    out->body = parse_block_body("endgeneration");
  } else if (name == "break" || name == "continue") {
    if (loop_depth_ == 0) fail_at(line, "'" + name + "' outside of a loop");
    out = std::make_unique<Stmt>();
    out->kind = name == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    expect_end_of_block();
  } else {
    fail_at(line, "tag '" + name +
                      "' is not supported; supported are for, if, set, macro, call, filter, with, "
                      "generation, break, continue, raw");
  }
  out->line = line;
  return out;
}

StmtPtr Parser::parse_for() {
  auto out = std::make_unique<Stmt>();
  out->kind = StmtKind::kFor;
  out->target = parse_target(false);
  if (!skip_name("in")) unexpected("'in'");
  out->expr = parse_tuple(false, "recursive");
  if (skip_name("if")) out->test = parse_expression();
  out->recursive = skip_name("recursive");
  expect_end_of_block();
  ++loop_depth_;
  out->body = parse_until({"else", "endfor"});
  --loop_depth_;
  next();
  const bool has_else = next().text == "else";
  expect_end_of_block();
  if (has_else) out->otherwise = parse_block_body("endfor");
  return out;
}

StmtPtr Parser::parse_if() {
  auto out = std::make_unique<Stmt>();
  Stmt* at = out.get();
  for (;;) {
    at->kind = StmtKind::kIf;
    at->line = peek().line;
    at->expr = parse_tuple(false);
    expect_end_of_block();
    at->body = parse_until({"elif", "else", "endif"});
    next();
    const std::string name = next().text;
    if (name == "elif") {
      // A chain of branches is as deep as it is long.
      if (++nesting_ > 150) fail_at(peek().line, "nested too deeply");
      at->otherwise.push_back(std::make_unique<Stmt>());
      at = at->otherwise.back().get();
      continue;
    }
    expect_end_of_block();
    if (name == "else") at->otherwise = parse_block_body("endif");
    for (const Stmt* branch = out.get(); branch != at; branch = branch->otherwise.front().get()) {
      --nesting_;
    }
    return out;
  }
}

ExprPtr Parser::parse_target(bool with_namespace) {
  const int line = peek().line;
  const auto one = [&]() -> ExprPtr {
    if (skip_operator("(")) {
      ExprPtr inner = parse_target(false);
      expect_operator(")");
      return inner;
    }
    ExprPtr name = make(ExprKind::kName, line);
    name->text = expect_name();
    if (name->text == "true" || name->text == "false" || name->text == "none" ||
        name->text == "True" || name->text == "False" || name->text == "None") {
      fail_at(line, "cannot assign to '" + name->text + "'");
    }
    if (with_namespace && skip_operator(".")) {
      ExprPtr attribute = make(ExprKind::kAttribute, line);
      attribute->text = expect_name();
      attribute->args.push_back(std::move(name));
      return grown(std::move(attribute));
    }
    return name;
  };
  const Nesting nesting(*this);
  ExprPtr first = one();
  if (!is_operator(",")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->args.push_back(std::move(first));
  while (skip_operator(",")) {
    if (is_name("in") || is_operator("=") || is_operator(")")) break;
    tuple->args.push_back(one());
  }
  return grown(std::move(tuple));
}

StmtPtr Parser::parse_set() {
  auto out = std::make_unique<Stmt>();
  out->target = parse_target(true);
  if (skip_operator("=")) {
    out->kind = StmtKind::kSet;
    out->expr = parse_tuple();
    expect_end_of_block();
    return out;
  }
  out->kind = StmtKind::kSetBlock;
  if (is_operator("|")) out->expr = parse_filter_chain(nullptr, false);
  expect_end_of_block();
  out->body = parse_block_body("endset");
  return out;
}

std::vector<Parameter> Parser::parse_parameters() {
  std::vector<Parameter> out;
  expect_operator("(");
  while (!skip_operator(")")) {
    if (!out.empty()) {
      expect_operator(",");
      if (skip_operator(")")) break;
    }
    Parameter parameter;
    parameter.name = expect_name();
    if (skip_operator("=")) {
      parameter.fallback = parse_expression();
    } else if (!out.empty() && out.back().fallback != nullptr) {
      fail_at(peek().line, "a parameter without default follows one with a default");
    }
    out.push_back(std::move(parameter));
  }
  return out;
}

StmtPtr Parser::parse_macro() {
  auto out = std::make_unique<Stmt>();
  out->kind = StmtKind::kMacro;
  out->text = expect_name();
  Stmt* const outer = std::exchange(macro_, out.get());
  const int loops = std::exchange(loop_depth_, 0);
  out->parameters = parse_parameters();
  expect_end_of_block();
  out->body = parse_block_body("endmacro");
  macro_ = outer;
  loop_depth_ = loops;
  return out;
}

StmtPtr Parser::parse_call_block() {
  auto out = std::make_unique<Stmt>();
  out->kind = StmtKind::kCallBlock;
  out->text = "caller";
  if (is_operator("(")) out->parameters = parse_parameters();
  out->expr = parse_expression();
  if (out->expr->kind != ExprKind::kCall) fail_at(peek().line, "{% call %} needs a call");
  expect_end_of_block();
  const int loops = std::exchange(loop_depth_, 0);
  out->body = parse_block_body("endcall");
  loop_depth_ = loops;
  return out;
}

StmtPtr Parser::parse_filter_block() {
  auto out = std::make_unique<Stmt>();
  out->kind = StmtKind::kFilterBlock;
  out->expr = parse_filter_chain(nullptr, true);
  expect_end_of_block();
  out->body = parse_block_body("endfilter");
  return out;
}

StmtPtr Parser::parse_with() {
  auto out = std::make_unique<Stmt>();
  out->kind = StmtKind::kWith;
  while (peek().kind != TokenKind::kBlockEnd) {
    if (!out->assignments.empty()) expect_operator(",");
    ExprPtr target = make(ExprKind::kName, peek().line);
    target->text = expect_name();
    expect_operator("=");
    out->assignments.emplace_back(std::move(target), parse_expression());
  }
  expect_end_of_block();
  out->body = parse_block_body("endwith");
  return out;
}

}  // namespace zipage::jinja
