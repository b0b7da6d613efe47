// Integer arithmetic of sizes: how many pieces of a size cover a length.
#pragma once

#include <type_traits>

namespace zipage {

// The least integer that is not below a / b. Of `a` at least 0 and `b` above 0.
template <typename A, typename B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  static_assert(std::is_integral_v<A> && std::is_integral_v<B>);
  return (a + b - 1) / b;
}

// The least multiple of `unit` that is not below `value`.
template <typename A, typename B>
constexpr std::common_type_t<A, B> round_up(A value, B unit) {
  return ceil_div(value, unit) * unit;
}

}  // namespace zipage
