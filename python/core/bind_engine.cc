// The engine and the collector of its outputs.
#include <memory>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "zipage/engine.h"

#include "bindings.h"
#include "collector.h"
#include "engine_owner.h"
#include "status.h"

namespace nb = nanobind;

namespace zipage::py {
namespace {

using Alternative = std::tuple<int32_t, float, int32_t>;  // token id, logprob, rank

std::vector<std::vector<Alternative>> tuples_of(
    const std::vector<std::vector<TokenLogprob>>& lists) {
  std::vector<std::vector<Alternative>> tuples(lists.size());
  for (size_t i = 0; i < lists.size(); ++i) {
    for (const TokenLogprob& entry : lists[i])
      tuples[i].emplace_back(entry.token_id, entry.logprob, entry.rank);
  }
  return tuples;
}

std::shared_ptr<Engine> engine_of(const EngineOwner& owner) {
  return value_or_raise(owner.engine());
}

std::shared_ptr<EngineOwner> open_engine(const EngineOptions& options) {
  return value_or_raise(without_gil([&] { return EngineOwner::open(options); }));
}

nb::dict describe(const EngineOwner& owner) {
  const auto engine = engine_of(owner);
  const EngineInfo& info = engine->info();
  nb::dict d;
  d["model_name"] = info.model_name;
  d["architecture"] = info.architecture;
  d["device"] = info.device;
  d["dtype"] = info.dtype;
  d["kv_cache_dtype"] = info.kv_cache_dtype;
  d["num_parameters"] = info.num_parameters;
  d["weight_bytes"] = info.weight_bytes;
  d["vocab_size"] = info.vocab_size;
  d["max_model_len"] = info.max_model_len;
  d["num_layers"] = info.num_layers;
  d["num_kv_heads"] = info.num_kv_heads;
  d["head_dim"] = info.head_dim;
  d["block_size"] = info.block_size;
  d["num_blocks"] = info.num_blocks;
  d["max_query_slots"] = info.max_query_slots;
  d["max_blocks_per_seq"] = info.max_blocks_per_seq;
  d["kv_bytes"] = info.kv_bytes;
  d["scratch_bytes"] = info.scratch_bytes;
  d["planned_bytes"] = info.planned_bytes;
  d["kv_budget"] = info.compression.kv_budget;
  d["kv_policy"] = to_string(info.compression.kv_policy);
  d["plan_line"] = info.plan_line;
  return d;
}

nb::dict count(const EngineOwner& owner) {
  const auto engine = engine_of(owner);
  const EngineStats s = without_gil([&] { return engine->stats(); });
  nb::dict d;
  d["num_running"] = s.num_running;
  d["num_waiting"] = s.num_waiting;
  d["num_swapped"] = s.num_swapped;
  d["num_compressing"] = s.num_compressing;
  d["num_blocks"] = s.num_blocks;
  d["num_free_blocks"] = s.num_free_blocks;
  d["num_cached_blocks"] = s.num_cached_blocks;
  d["num_query_slots"] = s.num_query_slots;
  d["num_used_query_slots"] = s.num_used_query_slots;
  d["prompt_tokens"] = s.prompt_tokens;
  d["generation_tokens"] = s.generation_tokens;
  d["recomputed_tokens"] = s.recomputed_tokens;
  d["preemptions"] = s.preemptions;
  d["compressions"] = s.compressions;
  d["steps"] = s.steps;
  d["prefix_cache_queries"] = s.prefix_cache_queries;
  d["prefix_cache_hits"] = s.prefix_cache_hits;
  d["swapped_out_blocks"] = s.swapped_out_blocks;
  d["swapped_in_blocks"] = s.swapped_in_blocks;
  d["evicted_tokens"] = s.evicted_tokens;
  d["compression_seconds"] = s.compression_seconds;
  d["step_seconds"] = s.step_seconds;
  return d;
}

void submit(Collector& collector,
            int64_t key,
            std::vector<int32_t> prompt_token_ids,
            const SamplingParams& sampling,
            int32_t priority,
            std::string cache_salt,
            std::string external_id) {
  raise_if_failed(without_gil([&] {
    Request request;
    request.prompt_token_ids = std::move(prompt_token_ids);
    request.sampling = sampling;
    request.priority = priority;
    request.cache_salt = std::move(cache_salt);
    request.external_id = std::move(external_id);
    return collector.submit(key, std::move(request));
  }));
}

void bind_owner(nb::module_& module) {
  nb::class_<EngineOwner>(module, "Engine", nb::is_weak_referenceable())
      .def_static("open", &open_engine, nb::arg("options"))
      .def("close", &EngineOwner::close, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("closed", &EngineOwner::closed)
      // Raises when the engine cannot be used: closed, or of another process.
      .def("check", [](const EngineOwner& self) { engine_of(self); })
      .def("info", &describe)
      .def("stats", &count)
      .def("take_log", &EngineOwner::take_log)
      .def("default_sampling_params",
           [](const EngineOwner& self) { return engine_of(self)->default_sampling_params(); })
      .def("reset_prefix_cache", [](const EngineOwner& self) {
        const auto engine = engine_of(self);
        without_gil([&] { engine->reset_prefix_cache(); });
      });
}

void bind_collector(nb::module_& module) {
  nb::class_<SequenceDelta>(module, "SequenceDelta")
      .def_ro("text", &SequenceDelta::text)
      .def_ro("token_ids", &SequenceDelta::token_ids)
      .def_prop_ro("logprobs", [](const SequenceDelta& self) { return tuples_of(self.logprobs); })
      .def_prop_ro("finish_reason",
                   [](const SequenceDelta& self) {
                     return self.finish_reason == FinishReason::kNone
                                ? std::optional<std::string>()
                                : std::optional<std::string>(to_string(self.finish_reason));
                   })
      .def_ro("stop_reason", &SequenceDelta::stop_reason)
      .def_prop_ro("error", [](const SequenceDelta& self) { return self.error.message(); });
  nb::class_<RequestDelta>(module, "RequestDelta")
      .def_ro("sequences", &RequestDelta::sequences)
      .def_prop_ro("prompt_logprobs",
                   [](const RequestDelta& self) { return tuples_of(self.prompt_logprobs); })
      .def_ro("num_cached_tokens", &RequestDelta::num_cached_tokens)
      .def_ro("finished", &RequestDelta::finished);
  nb::class_<Collector>(module, "Collector")
      .def(nb::init<std::shared_ptr<EngineOwner>, bool>(), nb::arg("engine"),
           nb::arg("every_token"))
      .def("submit", &submit, nb::arg("key"), nb::arg("prompt_token_ids"), nb::arg("sampling"),
           nb::arg("priority"), nb::arg("cache_salt"), nb::arg("external_id"))
      .def(
          "abort",
          [](Collector& self, int64_t key) {
            raise_if_failed(without_gil([&] { return self.abort(key); }));
          },
          nb::arg("key"))
      .def("wait", &Collector::wait, nb::arg("timeout_seconds"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("take", &Collector::take, nb::arg("key"))
      .def("num_live", &Collector::num_live)
      .def("fileno", &Collector::file_descriptor);
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_owner(module);
  bind_collector(module);
}

}  // namespace zipage::py
