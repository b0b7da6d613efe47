// Tokens to statements, by Jinja's grammar.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"

namespace zipage::jinja {

// Throws Error naming the line.
Body parse_template(std::string_view source);

// One template's parse; expressions are in parse_expression.cc, statements in parser.cc.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse();

 private:
  // Guards recursion: every level of nesting passes one of these.
  class Nesting;

  // Statements.
  Body parse_until(std::initializer_list<std::string_view> ends);
  StmtPtr parse_statement();
  StmtPtr parse_for();
  StmtPtr parse_if();
  StmtPtr parse_set();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_with();
  Body parse_block_body(std::string_view end);
  std::vector<Parameter> parse_parameters();
  ExprPtr parse_target(bool with_namespace);

  // Expressions.
  ExprPtr parse_tuple(bool with_condition = true, std::string_view end_name = "");
  ExprPtr parse_expression();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_parenthesized();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters(ExprPtr node);
  ExprPtr parse_filter_chain(ExprPtr node, bool start_inline);
  ExprPtr parse_test(ExprPtr node);
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_slice_or_index();
  void parse_arguments(Expr& call);

  // Tokens.
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() {
    Token token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_operator(std::string_view text) const {
    return peek().kind == TokenKind::kOperator && peek().text == text;
  }
  bool is_name(std::string_view text) const {
    return peek().kind == TokenKind::kName && peek().text == text;
  }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  void expect_end_of_block();
  [[noreturn]] void fail_at(int line, const std::string& what) const;
  [[noreturn]] void unexpected(const char* wanted) const;
  ExprPtr make(ExprKind kind, int line) const;
  // Keeps the depth of `node` right after its arguments have changed.
  ExprPtr grown(ExprPtr node) const;
  ExprPtr binary(std::string op, int line, ExprPtr left, ExprPtr right) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loop_depth_ = 0;
  // The names that the macro being parsed mentions, of varargs, kwargs and caller.
  Stmt* macro_ = nullptr;
};

class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > 150) parser_.fail_at(parser_.peek().line, "nested too deeply");
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace zipage::jinja
