// Every field of every POST body: the one list behind the check for unknown fields, /openapi.json
// and docs/api.md.
#pragma once

#include <span>
#include <string_view>

namespace zipage::server {

enum class FieldType { kBoolean, kInteger, kNumber, kString, kArray, kObject, kAny };

// What is done with a field that has a value other than null.
enum class Support {
  kHonoured,
  kNeutral,  // only a value that asks for nothing is accepted; any other is a 400
};

inline constexpr unsigned kChat = 1, kCompletion = 2, kTokenize = 4, kDetokenize = 8;
inline constexpr unsigned kGenerate = kChat | kCompletion;

struct FieldInfo {
  std::string_view name;
  FieldType type;
  unsigned endpoints;  // kChat | ...
  Support support;
  std::string_view text;  // what it does, or what is accepted
};

std::span<const FieldInfo> field_table();
const FieldInfo* find_field(std::string_view name, unsigned endpoint);

}  // namespace zipage::server
