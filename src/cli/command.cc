#include "cli/command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include "base/error.h"
#include "cli/config_file.h"

namespace zipage::cli {

int report(const Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "zipage: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

void fail_with(const Status& status) { throw Error(status.code(), status.message()); }

void read_numbers_as_decimal(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type != "INT" && type != "UINT" && type != "FLOAT") continue;
    option->transform(CLI::Validator(
        [](std::string& text) {
          const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
          size_t zeros = sign;
          while (zeros < text.size() && text[zeros] == '0') ++zeros;
          const bool digit = zeros < text.size() && text[zeros] >= '0' && text[zeros] <= '9';
          if (digit) text.erase(sign, zeros - sign);
          return std::string();
        },
        ""));
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    read_numbers_as_decimal(*command);
  }
}

namespace {

// What was printed may still be in a buffer, and the disk full.
int flush_output(int code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int reason = errno;
  if (flushed && std::ferror(stdout) == 0 && std::cout.flush()) return code;
  std::fprintf(stderr, "zipage: standard output cannot be written: %s\n",
               reason != 0 ? std::strerror(reason) : "the disk may be full");
  return code == kExitOk ? kExitFailure : code;
}

int run_command(int argc, char** argv) {
  CLI::App app{"Zipage: an inference engine for reasoning models with a capped KV cache"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "zipage 0.1.0");
  app.set_help_all_flag("--help-all", "Help of every subcommand");
  Action action;
  add_run_command(app, action);
  add_chat_command(app, action);
  add_serve_command(app, action);
  add_run_batch_command(app, action);
  add_eval_command(app, action);
  add_bench_command(app, action);
  add_inspect_command(app, action);
  add_tokenize_command(app, action);
  read_numbers_as_decimal(app);
  try {
    app.parse(argc, argv);
    apply_config_files(app);
    return action ? action() : kExitOk;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "zipage: %s (see --help)\n", error.what());
    return kExitUsage;
  } catch (...) {
    return report(current_exception_status());
  }
}

}  // namespace

int run_program(int argc, char** argv) { return flush_output(run_command(argc, argv)); }

}  // namespace zipage::cli
