// Integer ids that do not mix: a BlockId is no SlotId.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace zipage {

template <typename Tag, typename Int = int32_t>
class StrongId {
 public:
  using value_type = Int;
  constexpr StrongId() = default;  // invalid
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr bool valid() const { return value_ >= 0; }
  auto operator<=>(const StrongId&) const = default;

 private:
  Int value_ = -1;
};

}  // namespace zipage

template <typename Tag, typename Int>
struct std::hash<zipage::StrongId<Tag, Int>> {
  size_t operator()(zipage::StrongId<Tag, Int> id) const { return std::hash<Int>()(id.value()); }
};
