// Any bytes as --config FILE give flags their values, or one Error.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/config_file.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zipage::fuzz::MemoryFile file(data, size);
  CLI::App app;
  CLI::App* command = app.add_subcommand("eval");
  std::string config, text;
  int64_t number = 0;
  bool flag = false;
  std::vector<std::string> list;
  command->add_option("--config", config);
  command->add_option("--kv-policy", text);
  command->add_option("--kv-budget", number)->check(CLI::Range(0, 1 << 24));
  command->add_option("--policies", list)->delimiter(',');
  command->add_flag("--ignore-eos", flag);
  try {
    app.parse({file.path(), "--config", "eval"});  // CLI11 takes them from the back
    zipage::cli::apply_config_files(app);
  } catch (const zipage::Error&) {
  } catch (const CLI::Error&) {
  }
  return 0;
}
