// The fields that chat and plain completions share.
#include <charconv>
#include <limits>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace zipage::server {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

template <typename Target, typename Value>
void set(Target& target, const std::optional<Value>& value) {
  if (value) target = static_cast<Target>(*value);
}

void read_sampling(Fields& f, SamplingParams& p) {
  set(p.n, f.integer("n", 1, 128));
  set(p.temperature, f.number("temperature"));
  set(p.top_p, f.number("top_p"));
  set(p.top_k, f.integer("top_k", -1, kMaxInt));
  set(p.min_p, f.number("min_p"));
  set(p.typical_p, f.number("typical_p"));
  set(p.presence_penalty, f.number("presence_penalty"));
  set(p.frequency_penalty, f.number("frequency_penalty"));
  set(p.repetition_penalty, f.number("repetition_penalty"));
  if (const auto seed = f.integer("seed", std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max())) {
    // -1 asks for a random one, as in vLLM.
    if (*seed != -1) p.seed = static_cast<uint64_t>(*seed);
  }
  set(p.min_tokens, f.integer("min_tokens", 0, kMaxInt));
  p.stop = f.texts("stop", 64, 64 << 10);
  p.stop_token_ids = f.token_ids("stop_token_ids");
  set(p.include_stop_str_in_output, f.boolean("include_stop_str_in_output"));
  set(p.ignore_eos, f.boolean("ignore_eos"));
  set(p.skip_special_tokens, f.boolean("skip_special_tokens"));
  if (f.find("allowed_token_ids") != nullptr)
    p.allowed_token_ids = f.token_ids("allowed_token_ids");
  p.bad_words = f.texts("bad_words", 1024, 64 << 10);
}

void read_logit_bias(Fields& f, SamplingParams& p) {
  const auto* value = f.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object())
    fail_field("logit_bias", "expected an object of token ids, found {}", shown(*value));
  for (const auto& member : value->as_object()) {
    if (member.value().is_null()) continue;
    const std::string_view key = member.key();
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      fail_field("logit_bias", "'{}' is not a token id", key.substr(0, 40));
    const double bias = member.value().is_number() ? member.value().to_number<double>() : 1e9;
    if (!(bias >= -100 && bias <= 100)) {
      fail_field("logit_bias", "{} of token {}: expected a number in [-100, 100]",
                 shown(member.value()), id);
    }
    p.logit_bias[id] = static_cast<float>(bias);
  }
}

void read_kv(Fields& f, SamplingParams& p) {
  if (const auto* budget = f.find("kv_budget")) {
    if (budget->is_string()) {
      if (budget->as_string() != "full")
        fail_field("kv_budget", "expected a number of tokens or \"full\", found {}",
                   shown(*budget));
      p.kv_budget = kFullKv;
    } else {
      p.kv_budget = f.integer("kv_budget", 0, std::numeric_limits<int64_t>::max());
    }
  }
  if (const auto policy = f.text("kv_policy")) {
    const auto parsed = parse_kv_policy(*policy);
    if (!parsed.ok()) fail_field("kv_policy", "{}", parsed.status().message());
    p.kv_policy = parsed.value();
  }
}

void read_stream(Fields& f, GenerationRequest& request) {
  request.stream = f.boolean("stream").value_or(false);
  const auto* options = f.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object())
    fail_field("stream_options", "expected an object, found {}", shown(*options));
  if (!request.stream) fail_field("stream_options", "only with \"stream\": true");
  for (const auto& member : options->as_object()) {
    const std::string name(member.key());
    const bool known = name == "include_usage" || name == "continuous_usage_stats" ||
                       name == "include_obfuscation";
    if (!known) fail_field("stream_options." + name.substr(0, 80), "unknown field");
    if (member.value().is_null()) continue;
    if (!member.value().is_bool()) {
      fail_field("stream_options." + name, "expected true or false, found {}",
                 shown(member.value()));
    }
    const bool on = member.value().as_bool();
    if (name == "include_usage") request.include_usage = on;
    if (name == "continuous_usage_stats") request.continuous_usage = on;
    if (name == "include_obfuscation" && on)
      fail_field("stream_options.include_obfuscation", "not supported; accepted: false");
  }
}

// {} and {"json": null}.
bool asks_for_nothing(const boost::json::value& value) {
  if (!value.is_object()) return false;
  for (const auto& member : value.as_object()) {
    if (!member.value().is_null()) return false;
  }
  return true;
}

void refuse_unsupported(Fields& f) {
  const auto* beams = f.find("use_beam_search");
  f.only("use_beam_search", beams == nullptr || *beams == false, "false");
  const auto* length = f.find("length_penalty");
  f.only("length_penalty",
         length == nullptr || (length->is_number() && length->to_number<double>() == 1), "1");
  const auto* spaces = f.find("spaces_between_special_tokens");
  f.only("spaces_between_special_tokens", spaces == nullptr || *spaces == true, "true");
  f.only("thinking_token_budget", f.find("thinking_token_budget") == nullptr, "null");
  const auto* structured = f.find("structured_outputs");
  f.only("structured_outputs", structured == nullptr || asks_for_nothing(*structured),
         "null; structured output comes later");
  const auto* format = f.find("response_format");
  const auto* type =
      format != nullptr && format->is_object() ? format->as_object().if_contains("type") : nullptr;
  f.only("response_format",
         format == nullptr || asks_for_nothing(*format) || (type != nullptr && *type == "text"),
         "{\"type\": \"text\"}; structured output comes later");
}

// Fields about storing, billing and caching elsewhere: no answer depends on them.
void read_neutral(Fields& f) {
  for (const char* name : {"prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
    (void)f.text(name);
  (void)f.text("service_tier");
  (void)f.boolean("store");
  for (const char* name : {"metadata", "prediction"}) {
    const auto* value = f.find(name);
    if (value != nullptr && !value->is_object())
      fail_field(name, "expected an object, found {}", shown(*value));
  }
}

}  // namespace

void read_model(Fields& fields, const ModelContext& context, std::string* model) {
  *model = fields.text("model").value_or("");
  if (model->empty()) *model = context.names.front();
  for (const std::string& name : context.names) {
    if (name == *model) return;
  }
  throw ApiError(404, "model", fmt::format("The model `{}` does not exist.", *model));
}

void read_common(Fields& f, const ModelContext& context, GenerationRequest& request) {
  read_model(f, context, &request.model);
  request.sampling = context.defaults;
  read_sampling(f, request.sampling);
  read_logit_bias(f, request.sampling);
  read_kv(f, request.sampling);
  read_stream(f, request);
  refuse_unsupported(f);
  read_neutral(f);
  set(request.prompt_logprobs, f.integer("prompt_logprobs", -1, kMaxInt));
  request.sampling.prompt_logprobs = request.prompt_logprobs;
  if (request.stream && request.prompt_logprobs)
    fail_field("prompt_logprobs", "not with \"stream\": true");
  request.return_token_ids = f.boolean("return_token_ids").value_or(false);
  request.tokens_as_ids = f.boolean("return_tokens_as_token_ids").value_or(false);
  request.user = f.text("user").value_or("");
  request.cache_salt = f.text("cache_salt").value_or("");
  request.priority = static_cast<int32_t>(f.integer("priority", -kMaxInt, kMaxInt).value_or(0));
  if (const auto id = f.text("request_id")) {
    const bool plain = !id->empty() && id->size() <= 128 &&
                       id->find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789-_.:") == std::string::npos;
    if (!plain) fail_field("request_id", "expected 1 to 128 letters, digits, '-', '_', '.', ':'");
    request.id = *id;
  }
}

void truncate_prompts(Fields& f, const ModelContext& context, GenerationRequest& request) {
  const auto wanted = f.integer("truncate_prompt_tokens", -1, kMaxInt);
  if (!wanted) return;
  if (*wanted == 0) fail_field("truncate_prompt_tokens", "0: expected at least 1, or -1");
  const int64_t room =
      std::max<int64_t>(1, context.info.max_model_len - request.sampling.max_tokens.value_or(1));
  const auto most = static_cast<size_t>(*wanted == -1 ? room : *wanted);
  for (Prompt& prompt : request.prompts) {
    if (prompt.tokens.size() <= most) continue;
    prompt.tokens.erase(prompt.tokens.begin(),
                        prompt.tokens.end() - static_cast<std::ptrdiff_t>(most));
    prompt.text.clear();
  }
}

Prompt tokenize(const std::string& text,
                bool add_special_tokens,
                const ModelContext& context,
                const std::string& field,
                bool will_be_cut) {
  const int64_t most =
      context.info.max_model_len * std::max<int64_t>(1, context.longest_token_bytes);
  if (!will_be_cut && static_cast<int64_t>(text.size()) > most) {
    fail_field(field, "{} bytes are more than {} tokens (max_model_len) can be", text.size(),
               context.info.max_model_len);
  }
  return {context.tokenizer.encode(text, {.add_special_tokens = add_special_tokens}), text};
}

int64_t num_list_entries(const SamplingParams& p) {
  return static_cast<int64_t>(p.logit_bias.size() +
                              (p.allowed_token_ids ? p.allowed_token_ids->size() : 0) +
                              p.stop_token_ids.size() + p.bad_words.size() + p.stop.size());
}

}  // namespace zipage::server
