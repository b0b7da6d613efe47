// The zipage program: subcommands that see the public API only.
//
// Exit codes: 0 done, 1 the work failed (a broken file, no memory), 2 the command line is wrong,
// 130 interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "zipage/status.h"

namespace zipage::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

int run_program(int argc, char** argv);

// Takes leading zeros off the numbers of all options, also those of environment variables and
// --config: CLI11 would read 010 as octal and refuse 08.
void read_numbers_as_decimal(CLI::App& app);

// Each adds one subcommand. `action` of the chosen one is run after parsing; it returns the exit
// code.
using Action = std::function<int()>;
void add_run_command(CLI::App& app, Action& action);
void add_chat_command(CLI::App& app, Action& action);
void add_serve_command(CLI::App& app, Action& action);
void add_run_batch_command(CLI::App& app, Action& action);
void add_eval_command(CLI::App& app, Action& action);
void add_bench_command(CLI::App& app, Action& action);
// The parts of `zipage bench`.
void add_bench_latency_command(CLI::App& bench, Action& action);
void add_bench_schedule_command(CLI::App& bench, Action& action);
void add_bench_serve_command(CLI::App& bench, Action& action);
void add_inspect_command(CLI::App& app, Action& action);
void add_tokenize_command(CLI::App& app, Action& action);

// Prints "zipage: MESSAGE" on stderr and returns the exit code of the status.
int report(const Status& status);

// A command's own failure, turned into report() by run_program.
[[noreturn]] void fail_with(const Status& status);
template <typename T>
T value_or_fail(Result<T> result) {
  if (!result.ok()) fail_with(result.status());
  return std::move(result).value();
}

}  // namespace zipage::cli
