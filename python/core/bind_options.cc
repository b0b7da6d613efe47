// EngineOptions and SamplingParams, member by member. Words of enumerations are set as text.
#include <cstdint>
#include <limits>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>

#include "zipage/options.h"
#include "zipage/sampling_params.h"

#include "bindings.h"
#include "status.h"

namespace nb = nanobind;

namespace zipage::py {
namespace {

// The result with the option's name in front of its error.
template <typename T>
Result<T> named(const std::string& option, Result<T> result) {
  if (result.ok()) return result;
  return Status(result.status().code(), option + ": " + result.status().message());
}

// A property that shows an enumeration as its word.
template <typename Owner, typename Get, typename Enum>
void def_word(nb::class_<Owner>& owner,
              const char* name,
              Get member_of,
              Result<Enum> (*parse)(const std::string&)) {
  owner.def_prop_rw(
      name, [member_of](Owner& self) { return std::string(to_string(member_of(self))); },
      [name, member_of, parse](Owner& self, const std::string& word) {
        member_of(self) = value_or_raise(named(name, parse(word)));
      });
}

void bind_compression(nb::class_<EngineOptions>& options) {
  const auto def = [&]<typename T>(const char* name, T CompressionOptions::*member) {
    options.def_prop_rw(
        name, [member](const EngineOptions& self) { return self.compression.*member; },
        [member](EngineOptions& self, T value) { self.compression.*member = value; },
        nb::for_setter(nb::arg("value").none()));
  };
  def("kv_budget", &CompressionOptions::kv_budget);
  def("window_size", &CompressionOptions::window_size);
  def("score_weight", &CompressionOptions::score_weight);
  def("score_decay", &CompressionOptions::score_decay);
  def("pooling_width", &CompressionOptions::pooling_width);
  def("redundancy_temperature", &CompressionOptions::redundancy_temperature);
  def("similarity_threshold", &CompressionOptions::similarity_threshold);
  def("derotate", &CompressionOptions::derotate);
  def("attention_half_life", &CompressionOptions::attention_half_life);
  def("sink_tokens", &CompressionOptions::sink_tokens);
  def("protect_prompt", &CompressionOptions::protect_prompt);
  def("protect_newest", &CompressionOptions::protect_newest);
  def("layer_stride", &CompressionOptions::layer_stride);
  def("random_seed", &CompressionOptions::random_seed);
  const auto word = [&](const char* name, auto member, auto parse) {
    def_word(
        options, name, [member](EngineOptions & self) -> auto& { return self.compression.*member; },
        parse);
  };
  word("kv_policy", &CompressionOptions::kv_policy, &parse_kv_policy);
  word("score_reduce", &CompressionOptions::score_reduce, &parse_score_reduce);
  word("pooling", &CompressionOptions::pooling, &parse_pooling);
  word("redundancy", &CompressionOptions::redundancy, &parse_redundancy);
  word("combine", &CompressionOptions::combine, &parse_combine);
}

void bind_engine_options(nb::module_& module) {
  nb::class_<EngineOptions> options(module, "EngineOptions");
  options.def(nb::init<>())
      .def_rw("model", &EngineOptions::model)
      .def_rw("tokenizer", &EngineOptions::tokenizer)
      .def_rw("device", &EngineOptions::device)
      .def_rw("dtype", &EngineOptions::dtype)
      .def_rw("kv_cache_dtype", &EngineOptions::kv_cache_dtype)
      .def_rw("load_format", &EngineOptions::load_format)
      .def_rw("max_model_len", &EngineOptions::max_model_len)
      .def_rw("block_size", &EngineOptions::block_size)
      .def_rw("kv_cache_memory_bytes", &EngineOptions::kv_cache_memory_bytes)
      .def_rw("num_gpu_blocks_override", &EngineOptions::num_gpu_blocks_override)
      .def_rw("gpu_memory_utilization", &EngineOptions::gpu_memory_utilization)
      .def_rw("swap_space_bytes", &EngineOptions::swap_space_bytes)
      .def_rw("max_num_seqs", &EngineOptions::max_num_seqs)
      .def_rw("max_num_batched_tokens", &EngineOptions::max_num_batched_tokens)
      .def_rw("max_queued_requests", &EngineOptions::max_queued_requests)
      .def_rw("enable_prefix_caching", &EngineOptions::enable_prefix_caching)
      .def_rw("async_compression", &EngineOptions::async_compression)
      .def_rw("enforce_eager", &EngineOptions::enforce_eager)
      .def_rw("kv_trace", &EngineOptions::kv_trace)
      .def_rw("num_threads", &EngineOptions::num_threads)
      .def_rw("seed", &EngineOptions::seed, nb::arg("value").none())
      .def_rw("tensor_parallel_size", &EngineOptions::tensor_parallel_size);
  def_word(
      options, "scheduling", [](EngineOptions & self) -> auto& { return self.scheduling; },
      &parse_scheduling);
  def_word(
      options, "scheduling_policy",
      [](EngineOptions & self) -> auto& { return self.scheduling_policy; },
      &parse_scheduling_policy);
  bind_compression(options);
}

}  // namespace

void bind_options(nb::module_& module) {
  bind_engine_options(module);
  nb::class_<SamplingParams>(module, "SamplingParams")
      .def(nb::init<>())
      .def_rw("n", &SamplingParams::n)
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("typical_p", &SamplingParams::typical_p)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("seed", &SamplingParams::seed, nb::arg("value").none())
      .def_rw("max_tokens", &SamplingParams::max_tokens, nb::arg("value").none())
      .def_rw("min_tokens", &SamplingParams::min_tokens)
      .def_rw("stop", &SamplingParams::stop)
      .def_rw("stop_token_ids", &SamplingParams::stop_token_ids)
      .def_rw("ignore_eos", &SamplingParams::ignore_eos)
      .def_rw("include_stop_str_in_output", &SamplingParams::include_stop_str_in_output)
      .def_rw("skip_special_tokens", &SamplingParams::skip_special_tokens)
      .def_rw("spaces_between_special_tokens", &SamplingParams::spaces_between_special_tokens)
      .def_rw("detokenize", &SamplingParams::detokenize)
      .def_rw("logprobs", &SamplingParams::logprobs, nb::arg("value").none())
      .def_rw("prompt_logprobs", &SamplingParams::prompt_logprobs, nb::arg("value").none())
      .def_rw("skip_reading_prefix_cache", &SamplingParams::skip_reading_prefix_cache)
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("allowed_token_ids", &SamplingParams::allowed_token_ids, nb::arg("value").none())
      .def_rw("bad_words", &SamplingParams::bad_words)
      .def_rw("kv_budget", &SamplingParams::kv_budget, nb::arg("value").none())
      // What a vocabulary of any size would refuse.
      .def("validate",
           [](const SamplingParams& self) {
             raise_if_failed(self.validate(std::numeric_limits<int32_t>::max()));
           })
      .def_prop_rw(
          "kv_policy",
          [](const SamplingParams& self) {
            return self.kv_policy ? std::optional<std::string>(to_string(*self.kv_policy))
                                  : std::nullopt;
          },
          [](SamplingParams& self, const std::optional<std::string>& word) {
            self.kv_policy.reset();
            if (word) self.kv_policy = value_or_raise(named("kv_policy", parse_kv_policy(*word)));
          },
          nb::for_setter(nb::arg("value").none()));
}

}  // namespace zipage::py
