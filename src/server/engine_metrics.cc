// The engine's own numbers among the metrics: vLLM's names, then ours.
#include <algorithm>
#include <fmt/format.h>

#include "server/metrics.h"
#include "server/prometheus.h"

namespace zipage::server {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

void Metrics::render_engine(PrometheusText& text,
                            const EngineStats& s,
                            const EngineInfo& info,
                            const std::string& labels) const {
  const auto gauge = [&](const char* suffix, double value, const char* help) {
    text.gauge(name(suffix), labels, value, help);
  };
  const auto counter = [&](const char* suffix, double value, const char* help) {
    text.counter(name(suffix), labels, value, help);
  };
  const int64_t used = s.num_blocks - s.num_free_blocks;
  gauge("num_requests_running", static_cast<double>(s.num_running), "Sequences that run.");
  gauge("num_requests_waiting", static_cast<double>(s.num_waiting), "Sequences that wait.");
  gauge("num_requests_swapped", static_cast<double>(s.num_swapped),
        "Sequences whose KV is in host memory.");
  gauge("num_requests_compressing", static_cast<double>(s.num_compressing),
        "Sequences whose KV is being compressed.");
  gauge("kv_cache_usage_perc", share(used, s.num_blocks), "Used share of the KV blocks, 0 to 1.");
  text.family(name("cache_config_info"), "gauge", "What the engine decided at its start.");
  text.sample(name("cache_config_info"),
              fmt::format("{},block_size=\"{}\",num_gpu_blocks=\"{}\",cache_dtype=\"{}\","
                          "kv_budget=\"{}\",kv_policy=\"{}\"",
                          labels, info.block_size, info.num_blocks, info.kv_cache_dtype,
                          info.compression.kv_budget, to_string(info.compression.kv_policy)),
              1);
  counter("prompt_tokens_total", static_cast<double>(s.prompt_tokens), "Prompt tokens computed.");
  counter("generation_tokens_total", static_cast<double>(s.generation_tokens), "Tokens generated.");
  counter("num_preemptions_total", static_cast<double>(s.preemptions), "Preemptions.");
  counter("prefix_cache_queries_total", static_cast<double>(s.prefix_cache_queries),
          "Prompt tokens looked up in the prefix cache.");
  counter("prefix_cache_hits_total", static_cast<double>(s.prefix_cache_hits),
          "Prompt tokens found in the prefix cache.");

  // What boards made for vLLM look for: there are no adapters and no drafts here, so none is
  // counted.
  text.family(name("lora_requests_info"), "gauge", "LoRA adapters in use: none.");
  text.sample(name("lora_requests_info"),
              labels + ",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"", 0);
  for (const char* suffix :
       {"spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens_per_pos_total"})
    counter(suffix, 0, "Speculative decoding: none.");

  // Ours.
  const std::string blocks = name("kv_blocks");
  text.family(blocks, "gauge", "KV blocks by state.");
  text.sample(blocks, labels + ",state=\"used\"", static_cast<double>(used));
  text.sample(blocks, labels + ",state=\"cached\"", static_cast<double>(s.num_cached_blocks));
  text.sample(blocks, labels + ",state=\"free\"",
              static_cast<double>(s.num_free_blocks - s.num_cached_blocks));
  gauge("query_slots", static_cast<double>(s.num_query_slots), "Query slots.");
  gauge("query_slots_used", static_cast<double>(s.num_used_query_slots), "Query slots in use.");
  counter("compressions_total", static_cast<double>(s.compressions), "Compressions done.");
  counter("compression_seconds_total", s.compression_seconds, "Wall time of compressions.");
  counter("evicted_tokens_total", static_cast<double>(s.evicted_tokens),
          "Entries evicted by compressions, per layer and head.");
  const double token_bytes = info.num_blocks > 0 && info.block_size > 0
                                 ? static_cast<double>(info.kv_bytes) /
                                       static_cast<double>(info.num_blocks * info.block_size)
                                 : 0;
  counter("kv_bytes_saved_total", token_bytes * static_cast<double>(s.evicted_tokens),
          "KV bytes that compressions gave back.");
  counter("swapped_out_blocks_total", static_cast<double>(s.swapped_out_blocks),
          "Blocks copied to host memory.");
  counter("swapped_in_blocks_total", static_cast<double>(s.swapped_in_blocks),
          "Blocks copied back.");
  counter("recomputed_tokens_total", static_cast<double>(s.recomputed_tokens),
          "Tokens computed again after preemption.");
  counter("steps_total", static_cast<double>(s.steps), "Engine steps.");
  counter("step_seconds_total", s.step_seconds, "Wall time of engine steps.");
}

}  // namespace zipage::server
