// Where the repository lies: the models, problems and documents that tests read.
#pragma once

#include <cstdlib>
#include <string>

namespace zipage::test {

// `name` is relative to the repository. ZIPAGE_SOURCE_DIR in the environment says where it is when
// the programs were built elsewhere (script/pack).
inline std::string source_path(const std::string& name) {
  const char* moved = std::getenv("ZIPAGE_SOURCE_DIR");
  return std::string(moved != nullptr ? moved : ZIPAGE_SOURCE_DIR) + "/" + name;
}

}  // namespace zipage::test
