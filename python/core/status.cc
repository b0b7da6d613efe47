#include "status.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string>

namespace zipage::py {
namespace {

class EngineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The engine names options as flags, "--kv-policy"; here they are keywords, "kv_policy".
std::string with_keywords(const std::string& message) {
  static constexpr const char* kWord = "abcdefghijklmnopqrstuvwxyz0123456789-";
  std::string text;
  size_t at = 0;
  while (true) {
    const size_t flag = message.find("--", at);
    text += message.substr(at, flag - at);
    if (flag == std::string::npos) return text;
    const size_t end = std::min(message.find_first_not_of(kWord, flag), message.size());
    std::string word = message.substr(flag, end - flag);
    if (word.size() > 2 && std::isalpha(static_cast<unsigned char>(word[2])) != 0) {
      word.erase(0, 2);
      std::replace(word.begin(), word.end(), '-', '_');
    }
    text += word;
    at = end;
  }
}

}  // namespace

void bind_errors(nanobind::module_& module) {
  nanobind::exception<EngineError>(module, "EngineError", PyExc_RuntimeError);
}

void raise_if_failed(const Status& status) {
  PyObject* type = nullptr;
  switch (status.code()) {
    case StatusCode::kOk:
      return;
    case StatusCode::kInvalidArgument:
      type = PyExc_ValueError;
      break;
    case StatusCode::kNotFound:
      type = PyExc_FileNotFoundError;
      break;
    case StatusCode::kUnimplemented:
      type = PyExc_NotImplementedError;
      break;
    default:
      throw EngineError(std::string(to_string(status.code())) + ": " +
                        with_keywords(status.message()));
  }
  PyErr_SetString(type, with_keywords(status.message()).c_str());
  throw nanobind::python_error();
}

}  // namespace zipage::py
