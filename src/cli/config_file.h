// --config FILE: flags from a YAML file. The command line and ZIPAGE_* variables win over it.
#pragma once

#include <CLI/CLI.hpp>

namespace zipage::cli {

// Gives every option of a parsed (sub)command that has a --config option the file's value, unless
// the option was given. Keys are flag names with or without dashes in front, "-" and "_" alike. An
// unknown key is an error naming it.
void apply_config_files(CLI::App& app);

}  // namespace zipage::cli
