// zipage inspect MODEL: what the engine would make of a model, without running it.
#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/workload.h"

namespace zipage::cli {
namespace {

std::string mib(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
}

struct InspectCommand {
  EngineFlags engine;
  std::string json_path;

  int run() {
    const auto model = engine.create_engine();
    const EngineInfo& i = model->info();
    const CompressionOptions& c = i.compression;
    const std::vector<std::vector<std::string>> rows = {
        {"model", i.model_name},
        {"architecture", i.architecture},
        {"parameters", fmt::format("{:.2f} M", static_cast<double>(i.num_parameters) / 1e6)},
        {"weights", mib(i.weight_bytes)},
        {"vocabulary", std::to_string(i.vocab_size)},
        {"layers", std::to_string(i.num_layers)},
        {"KV heads x head_dim", fmt::format("{} x {}", i.num_kv_heads, i.head_dim)},
        {"max_model_len", std::to_string(i.max_model_len)},
        {"device", i.device},
        {"dtype / KV dtype", i.dtype + " / " + i.kv_cache_dtype},
        {"KV budget", c.capped()
                          ? fmt::format("{} tokens, policy {}", c.kv_budget, to_string(c.kv_policy))
                          : "full"},
        {"blocks", fmt::format("{} of {} tokens, {}", i.num_blocks, i.block_size, mib(i.kv_bytes))},
        {"N_max, query slots M", fmt::format("{}, {}", i.max_blocks_per_seq, i.max_query_slots)},
        {"compression scratch", mib(i.scratch_bytes)},
    };
    for (const auto& row : rows) std::printf("%-22s %s\n", row[0].c_str(), row[1].c_str());
    if (!json_path.empty()) {
      boost::json::object report;
      report["model"] = i.model_name;
      report["architecture"] = i.architecture;
      report["parameters"] = i.num_parameters;
      report["weight_bytes"] = i.weight_bytes;
      report["vocab_size"] = i.vocab_size;
      report["num_layers"] = i.num_layers;
      report["num_blocks"] = i.num_blocks;
      report["block_size"] = i.block_size;
      report["max_query_slots"] = i.max_query_slots;
      report["max_blocks_per_seq"] = i.max_blocks_per_seq;
      report["kv_bytes"] = i.kv_bytes;
      report["scratch_bytes"] = i.scratch_bytes;
      report["max_model_len"] = i.max_model_len;
      write_json(json_path, report);
    }
    return kExitOk;
  }
};

}  // namespace

void add_inspect_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<InspectCommand>();
  CLI::App* sub =
      app.add_subcommand("inspect", "Show a model, its memory plan and what was decided");
  sub->add_option("--json", command->json_path, "Write the numbers to this file");
  command->engine.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
