#include "cli/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace zipage::cli {
namespace {

[[noreturn]] void cannot_write(const char* flag, const std::string& path, int reason) {
  fail(StatusCode::kResourceExhausted, "{}: cannot write '{}': {}", flag, path,
       std::strerror(reason));
}

}  // namespace

void check_writable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) cannot_write(flag, path, errno);
  std::fclose(file);
  if (!existed) std::filesystem::remove(path, ignored);
}

void write_file(const char* flag, const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) cannot_write(flag, path, errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int reason = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) cannot_write(flag, path, written ? errno : reason);
}

}  // namespace zipage::cli
