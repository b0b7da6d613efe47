// zipage inspect MODEL: what the engine would make of a model, without running it.
// zipage inspect --kv-trace FILE: what the compressions of a run kept.
#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "zipage/kv_trace.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/output_file.h"
#include "cli/trace_table.h"
#include "cli/workload.h"

namespace zipage::cli {
namespace {

std::string mib(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
}

TraceRows parse_rows(const std::string& text) {
  if (text == "request") return TraceRows::kRequest;
  if (text == "compression") return TraceRows::kCompression;
  if (text == "layer") return TraceRows::kLayer;
  if (text == "head") return TraceRows::kHead;
  fail_invalid("--by: '{}': expected request, compression, layer or head", text);
}

struct InspectCommand {
  EngineFlags engine;
  std::string json_path, trace_path, by = "compression", request;
  int64_t compression = 0;
  bool has_model = false;

  int run() {
    check_writable("--json", json_path);
    if (trace_path.empty()) {
      if (by != "compression" || !request.empty() || compression > 0)
        fail_invalid("--by, --request, --compression: only with --kv-trace");
      return show_model();
    }
    if (has_model) fail_invalid("--kv-trace: give a model or a trace to inspect, not both");
    return show_trace();
  }

  // What can be read of a broken trace is shown before the error.
  int show_trace() const {
    TraceTable table(parse_rows(by), request, compression);
    const auto file = value_or_fail(KvTraceFile::open(trace_path));
    KvTraceRecord record;
    Result<bool> more = true;
    while ((more = file->next(record)).ok() && more.value()) table.add(record);
    std::printf("%s\n", table.summary().c_str());
    if (!table.empty()) {
      std::printf(
          "Percent of each part's tokens whose entry is kept: sinks (the first %d), prompt, "
          "middle, "
          "newest (the last %d);\n10%% ... 100%%: the sequence by tenths, oldest first. Of the "
          "kept "
          "entries: protected ones, scores of the others\n\n%s",
          KeptParts::kSinkTokens, KeptParts::kNewestTokens, table.text().c_str());
    }
    if (!json_path.empty()) write_json(json_path, {{"rows", table.json()}});
    if (!more.ok()) return report(more.status());
    if (table.empty() && (!request.empty() || compression > 0)) {
      fail(StatusCode::kNotFound, "{}: no compression is what --request and --compression name",
           trace_path);
    }
    return kExitOk;
  }

  int show_model() const {
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
  CLI::App* sub = app.add_subcommand(
      "inspect", "Show a model, its memory plan and what was decided; or a KV trace");
  sub->add_option("--json", command->json_path, "Write the numbers to this file");
  const std::string group = "KV trace";
  sub->add_option(
         "--kv-trace", command->trace_path,
         "Instead of a model: show what the compressions of a run kept, from the file that "
         "its --kv-trace wrote")
      ->group(group);
  sub->add_option("--by", command->by, "A row for each request, compression, layer or head")
      ->capture_default_str()
      ->group(group);
  sub->add_option("--request", command->request, "Only this request (its number or id)")
      ->group(group);
  sub->add_option("--compression", command->compression,
                  "Only the first, second, ... compression of each request")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command->engine.add_to(*sub, /*runs=*/false);
  sub->callback([command, sub, &action] {
    command->has_model = sub->get_option("MODEL")->count() > 0;
    action = [command] { return command->run(); };
  });
}

}  // namespace zipage::cli
