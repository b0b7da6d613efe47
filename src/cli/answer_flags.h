// Flags that say how requests are read and answered, shared by serve and run-batch.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "server/server_options.h"

namespace zipage::cli {

void add_answer_flags(CLI::App& command, server::ServerOptions& options);
// --chat-template-content-format, which run and chat have too.
void add_content_format_flag(CLI::App& command, ChatContentFormat& format);
// The first flag whose value is wrong throws kInvalidArgument, by name.
void check_answer_flags(const server::ServerOptions& options);
// Puts options from number `first` on into the group of the help, and gives each its ZIPAGE_* name.
void group_options(CLI::App& command, size_t first, const std::string& group);

}  // namespace zipage::cli
