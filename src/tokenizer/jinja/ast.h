// What a template says: expressions and statements. Immutable once parsed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace zipage::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

enum class ExprKind : uint8_t {
  kLiteral,      // value
  kName,         // text
  kAttribute,    // args[0].text
  kItem,         // args[0][args[1]]
  kSlice,        // args[0][args[1]:args[2]:args[3]], null where omitted
  kCall,         // args[0](args[1:], named)
  kFilter,       // args[0] | text(args[1:], named); args[0] null: the body of a block
  kTest,         // args[0] is text(args[1:], named)
  kUnary,        // text: "not", "-", "+"
  kBinary,       // text: + - * / // % ** ~ and or
  kCompare,      // args[0] ops[0] args[1] ops[1] args[2] ...
  kConditional,  // args[0] if args[1] else args[2], which may be null
  kList,
  kTuple,
  kDict,  // key, value, key, value ...
};

struct Expr {
  ExprKind kind;
  int line = 0;
  int depth = 1;
  std::string text;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> ops;
  // Of a call: "*args" and "**kwargs", null if there are none.
  ExprPtr star;
  ExprPtr double_star;
};

enum class StmtKind : uint8_t {
  kData,       // text
  kPrint,      // expr
  kFor,        // target in expr [if test] body else otherwise
  kIf,         // expr, body, otherwise
  kSet,        // target = expr
  kSetBlock,   // target = body through filters
  kMacro,      // text(parameters) body
  kCallBlock,  // expr is the call, parameters and body make its caller
  kFilterBlock,
  kWith,   // assignments, body
  kScope,  // body in a scope of its own: generation
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // may be null
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  std::string text;
  ExprPtr expr;
  ExprPtr target;  // kName, kTuple of names, kAttribute of a name
  ExprPtr test;
  Body body;
  Body otherwise;
  std::vector<Parameter> parameters;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
  bool recursive = false;
  bool uses_varargs = false;  // of a macro
  bool uses_kwargs = false;
  bool uses_caller = false;
};

}  // namespace zipage::jinja
