// Loops unrolled by the front end. The optimizer keeps an array of vectors in registers only when
// it sees constant indices before it lays out the array; loops that it unrolls itself come too late
// for that. Internal to each file that includes it, as everything that is compiled for one
// instruction set.
#pragma once

#include <type_traits>
#include <utility>

// Of functions and of lambdas.
#define ZIPAGE_ALWAYS_INLINE __attribute__((always_inline))

namespace zipage::cpu {
namespace {

template <int... kIndices, typename Body>
ZIPAGE_ALWAYS_INLINE inline void unroll_over(std::integer_sequence<int, kIndices...>, Body&& body) {
  (body(std::integral_constant<int, kIndices>{}), ...);
}

// body(integral_constant<int, i>) for i in [0, kCount). The body is a ZIPAGE_ALWAYS_INLINE lambda.
template <int kCount, typename Body>
ZIPAGE_ALWAYS_INLINE inline void unroll(Body&& body) {
  unroll_over(std::make_integer_sequence<int, kCount>{}, body);
}

}  // namespace
}  // namespace zipage::cpu
