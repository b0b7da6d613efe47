// The names of all policies as help texts and errors list them, made from kKvPolicies when the
// program is compiled.
//
//   command.add_option("--kv-policy", policy, std::string(kv_policy_names()));
//
// Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "zipage/kv_policy.h"

namespace zipage {
namespace kv_policy_names_internal {

// Writes the list to `out` when it is not null; its length.
constexpr size_t write_list(char* out) {
  size_t length = 0;
  const auto put = [&](std::string_view text) {
    for (const char c : text) {
      if (out != nullptr) out[length] = c;
      ++length;
    }
  };
  for (size_t i = 0; i < kNumKvPolicies; ++i) {
    if (i > 0) put(i + 1 < kNumKvPolicies ? ", " : " or ");
    put(kKvPolicies[i].name);
  }
  return length;
}

inline constexpr auto kList = [] {
  std::array<char, write_list(nullptr)> list{};
  write_list(list.data());
  return list;
}();

}  // namespace kv_policy_names_internal

// "peak, paper, attention, redundancy, global, recency or random".
constexpr std::string_view kv_policy_names() {
  return {kv_policy_names_internal::kList.data(), kv_policy_names_internal::kList.size()};
}

}  // namespace zipage
