#include "cli/command.h"

#include <cstdio>
#include <exception>

#include "base/error.h"
#include "cli/config_file.h"

namespace zipage::cli {

int report(const Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "zipage: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

void fail_with(const Status& status) { throw Error(status.code(), status.message()); }

int run_program(int argc, char** argv) {
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

}  // namespace zipage::cli
