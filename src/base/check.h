// CHECK macros: assertions about our own bugs, in every build. A failed check throws CheckFailure
// with the expression, both values, file and line. It ends what it touched (a step, a request), not
// the process. Bad input is no bug: see base/error.h.
//
//   ZIPAGE_CHECK_LT(row, num_rows);
#pragma once

#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace zipage {

class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* file, int line, const std::string& what);

template <typename A, typename B>
[[noreturn]] void check_op_failed(
    const char* file, int line, const char* text, const A& a, const B& b) {
  if constexpr (fmt::is_formattable<A>::value && fmt::is_formattable<B>::value) {
    check_failed(file, line, fmt::format("{} ({} vs. {})", text, a, b));
  } else {
    check_failed(file, line, text);
  }
}

}  // namespace zipage

#define ZIPAGE_CHECK(condition) \
  ((condition) ? (void)0 : ::zipage::check_failed(__FILE__, __LINE__, #condition))
#define ZIPAGE_CHECK_OP(a, op, b)                                                         \
  do {                                                                                    \
    const auto& check_a = (a);                                                            \
    const auto& check_b = (b);                                                            \
    if (!(check_a op check_b)) {                                                          \
      ::zipage::check_op_failed(__FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
    }                                                                                     \
  } while (false)
#define ZIPAGE_CHECK_EQ(a, b) ZIPAGE_CHECK_OP(a, ==, b)
#define ZIPAGE_CHECK_NE(a, b) ZIPAGE_CHECK_OP(a, !=, b)
#define ZIPAGE_CHECK_LT(a, b) ZIPAGE_CHECK_OP(a, <, b)
#define ZIPAGE_CHECK_LE(a, b) ZIPAGE_CHECK_OP(a, <=, b)
#define ZIPAGE_CHECK_GT(a, b) ZIPAGE_CHECK_OP(a, >, b)
#define ZIPAGE_CHECK_GE(a, b) ZIPAGE_CHECK_OP(a, >=, b)
