// Files that commands write when their work is done.
#pragma once

#include <string>
#include <string_view>

namespace zipage::cli {

// Throws Error naming flag and file when write_file() could not write it: to be asked before hours
// of work. An empty path is fine. The file is left as it is.
void check_writable(const char* flag, const std::string& path);
// Replaces the file; throws Error naming flag and file when it cannot.
void write_file(const char* flag, const std::string& path, std::string_view text);

}  // namespace zipage::cli
