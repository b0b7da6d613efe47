// StrongId<Tag>: integer ids of different kinds that do not convert into one another, so that a
// BlockId cannot be passed as a SlotId. A default-constructed id is invalid (-1).
//
//   using BlockId = StrongId<struct BlockIdTag>;
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace zipage {

template <typename Tag, typename Int = int32_t>
class StrongId {
 public:
  using value_type = Int;
  // Invalid
  constexpr StrongId() = default;
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
