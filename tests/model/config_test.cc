#include "model/config.h"

#include <gtest/gtest.h>
#include <map>

#include "model/generation_config.h"
#include "support/errors.h"
#include "support/files.h"
#include "weights/json.h"

namespace zipage {
namespace {

using test::expect_error;

// The fields of a config.json as JSON text; `changes` replace, an empty one removes.
using Fields = std::map<std::string, std::string>;

std::string config_text(const Fields& changes) {
  Fields fields = {{"architectures", R"(["LlamaForCausalLM"])"},
                   {"hidden_size", "64"},
                   {"intermediate_size", "96"},
                   {"num_hidden_layers", "2"},
                   {"num_attention_heads", "4"},
                   {"num_key_value_heads", "2"},
                   {"vocab_size", "100"},
                   {"max_position_embeddings", "512"},
                   {"rms_norm_eps", "1e-5"},
                   {"rope_theta", "20000.0"},
                   {"eos_token_id", "2"},
                   {"torch_dtype", R"("bfloat16")"}};
  for (const auto& [key, value] : changes) fields[key] = value;
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    if (value.empty()) continue;
    text += (text.size() > 1 ? ",\"" : "\"") + key + "\":" + value;
  }
  return text + "}";
}

ModelConfig parse(const Fields& changes) {
  return parse_model_config(JsonValue::parse(config_text(changes), "x/config.json"));
}

TEST(ConfigTest, LlamaFields) {
  const ModelConfig c = parse({});
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.rope.rotary_dim, 16);
  EXPECT_EQ(c.rope.theta, 20000.0);
  EXPECT_EQ(c.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_FALSE(c.attention_bias || c.output_bias || c.mlp_bias || c.qk_norm ||
               c.tie_word_embeddings);
  EXPECT_FALSE(c.interleaved_qk);
  EXPECT_EQ(parse({{"num_key_value_heads", ""}}).num_kv_heads, 4);
  EXPECT_EQ(parse({{"head_dim", "32"}}).head_dim, 32);
  const ModelConfig biased = parse({{"attention_bias", "true"}, {"mlp_bias", "true"}});
  EXPECT_TRUE(biased.attention_bias && biased.output_bias && biased.mlp_bias);
  EXPECT_EQ(parse({{"eos_token_id", "[7,8]"}}).eos_token_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_TRUE(parse({{"eos_token_id", "null"}}).eos_token_ids.empty());
}

TEST(ConfigTest, FamiliesDifferInBiasAndNorm) {
  const ModelConfig qwen2 = parse({{"architectures", R"(["Qwen2ForCausalLM"])"}});
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_FALSE(qwen2.output_bias);
  const ModelConfig qwen3 =
      parse({{"architectures", R"(["Qwen3ForCausalLM"])"}, {"attention_bias", "true"}});
  EXPECT_TRUE(qwen3.qk_norm && qwen3.attention_bias && qwen3.output_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  const ModelConfig mistral =
      parse({{"architectures", R"(["MistralForCausalLM"])"}, {"sliding_window", "null"}});
  EXPECT_EQ(mistral.model_type, "mistral");
  EXPECT_EQ(parse({{"architectures", ""}, {"model_type", R"("qwen3")"}}).architecture,
            "Qwen3ForCausalLM");
}

TEST(ConfigTest, Transformers5Names) {
  const ModelConfig c =
      parse({{"rope_theta", ""},
             {"torch_dtype", ""},
             {"dtype", R"("float16")"},
             {"rope_parameters", R"({"rope_theta":5000.0,"rope_type":"linear","factor":2.0})"}});
  EXPECT_EQ(c.rope.theta, 5000.0);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(c.max_context_tokens(), 1024);
  EXPECT_EQ(c.dtype, DType::kF16);
}

TEST(ConfigTest, YarnDefaultsAreThoseOfTransformers) {
  const RopeConfig yarn =
      parse({{"rope_scaling", R"({"type":"yarn","original_max_position_embeddings":128})"}}).rope;
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.factor, 4.0);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1.0);
  // Qwen's way: max_position_embeddings is the length before the scaling.
  const ModelConfig qwen = parse(
      {{"rope_scaling", R"({"type":"yarn","factor":4.0,"original_max_position_embeddings":512})"}});
  EXPECT_EQ(qwen.max_context_tokens(), 2048);
}

TEST(ConfigTest, AWindowThatHidesNothingIsAccepted) {
  EXPECT_NO_THROW(
      parse({{"architectures", R"(["MistralForCausalLM"])"}, {"sliding_window", "512"}}));
  const std::string qwen2 = R"(["Qwen2ForCausalLM"])";
  EXPECT_NO_THROW(
      parse({{"architectures", qwen2}, {"sliding_window", "64"}, {"use_sliding_window", "false"}}));
  EXPECT_NO_THROW(parse({{"architectures", qwen2},
                         {"sliding_window", "64"},
                         {"use_sliding_window", "true"},
                         {"max_window_layers", "2"}}));
  EXPECT_NO_THROW(
      parse({{"architectures", qwen2}, {"layer_types", R"(["full_attention","full_attention"])"}}));
}

struct Broken {
  Fields changes;
  std::vector<std::string> words;
  StatusCode code = StatusCode::kDataLoss;
};

std::vector<Broken> broken_configs() {
  constexpr auto kUnimplemented = StatusCode::kUnimplemented;
  const std::string qwen2 = R"(["Qwen2ForCausalLM"])";
  const std::string mistral = R"(["MistralForCausalLM"])";
  return {
      {{{"architectures", R"(["GPT2LMHeadModel"])"}},
       {"GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"},
       kUnimplemented},
      {{{"architectures", "[]"}}, {"[]", "supported"}, kUnimplemented},
      {{{"architectures", "3"}}, {"'architectures'", "3", "array"}},
      {{{"architectures", ""}}, {"'model_type'", "missing"}},
      {{{"architectures", ""}, {"model_type", R"("bert")"}}, {"bert", "supported"}, kUnimplemented},
      {{{"hidden_size", ""}}, {"'hidden_size'", "missing"}},
      {{{"hidden_size", "0"}}, {"'hidden_size'", "0", "1 to"}},
      {{{"hidden_size", "-64"}}, {"'hidden_size'", "-64"}},
      {{{"hidden_size", "64.5"}}, {"'hidden_size'", "integer"}},
      {{{"hidden_size", "\"64\""}}, {"'hidden_size'", "\"64\""}},
      {{{"hidden_size", "99999999999"}}, {"'hidden_size'", "99999999999"}},
      {{{"hidden_size", "1e400"}}, {"'hidden_size'"}},
      {{{"hidden_size", "66"}}, {"'hidden_size'", "66", "num_attention_heads, 4"}},
      {{{"intermediate_size", "null"}}, {"'intermediate_size'", "missing"}},
      {{{"num_hidden_layers", "100000"}}, {"'num_hidden_layers'", "100000"}},
      {{{"num_attention_heads", "0"}}, {"'num_attention_heads'", "0"}},
      {{{"num_key_value_heads", "3"}}, {"4 query heads", "3 key-value heads"}},
      {{{"num_key_value_heads", "8"}}, {"4 query heads", "8 key-value heads"}},
      {{{"architectures", qwen2}, {"num_key_value_heads", ""}},
       {"'num_key_value_heads'", "missing"}},
      {{{"head_dim", "15"}}, {"head_dim 15", "even"}},
      {{{"head_dim", "1000000"}}, {"'head_dim'", "1000000"}},
      {{{"vocab_size", "0"}}, {"'vocab_size'", "0"}},
      {{{"max_position_embeddings", "0"}}, {"'max_position_embeddings'"}},
      {{{"rms_norm_eps", "-1"}}, {"'rms_norm_eps'", "-1"}},
      {{{"rms_norm_eps", "\"small\""}}, {"'rms_norm_eps'", "small"}},
      {{{"rms_norm_eps", "NaN"}}, {"not valid JSON"}},
      {{{"rope_theta", "0"}}, {"'rope_theta'", "0"}},
      {{{"rope_theta", "1e999"}}, {"config.json"}},
      {{{"partial_rotary_factor", "1.5"}}, {"'partial_rotary_factor'", "1.5"}},
      {{{"partial_rotary_factor", "0.2"}}, {"3 of head_dim 16"}},
      {{{"partial_rotary_factor", "0"}}, {"0 of head_dim 16"}},
      {{{"rope_scaling", "4"}}, {"'rope_scaling'", "4", "object"}},
      {{{"rope_scaling", R"({"type":"longrope","factor":2})"}},
       {"longrope", "llama3, yarn"},
       kUnimplemented},
      {{{"rope_scaling", R"({"type":"linear"})"}}, {"'rope_scaling.factor'", "missing"}},
      {{{"rope_scaling", R"({"type":"linear","factor":0})"}}, {"'rope_scaling.factor'", "0"}},
      {{{"rope_scaling", R"({"type":"linear","factor":"2"})"}}, {"'rope_scaling.factor'", "\"2\""}},
      {{{"rope_scaling", R"({"rope_type":"llama3","factor":8})"}},
       {"'rope_scaling.low_freq_factor'", "missing"}},
      {{{"rope_scaling",
         R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})"}},
       {"'rope_scaling.high_freq_factor'", "low_freq_factor, 4"}},
      {{{"rope_scaling", R"({"type":"yarn","factor":2,"beta_fast":1,"beta_slow":3})"}},
       {"beta_fast", "beta_slow, 3"}},
      {{{"rope_scaling", R"({"type":"yarn","factor":2,"attention_factor":-1})"}},
       {"attention_factor", "-1"}},
      {{{"rope_scaling", R"({"type":"yarn","factor":2,"original_max_position_embeddings":0})"}},
       {"original_max_position_embeddings", "0"}},
      {{{"rope_parameters", R"({"full_attention":{"rope_theta":1e4}})"}},
       {"rope_parameters.full_attention", "layer"},
       kUnimplemented},
      {{{"eos_token_id", "100"}}, {"eos_token_id is 100", "vocab_size is 100"}},
      {{{"eos_token_id", "-2"}}, {"'eos_token_id'", "-2"}},
      {{{"eos_token_id", "[2,\"x\"]"}}, {"'eos_token_id[1]'", "\"x\""}},
      {{{"bos_token_id", "4294967296"}}, {"'bos_token_id'", "4294967296"}},
      {{{"tie_word_embeddings", "1"}}, {"'tie_word_embeddings'", "true or false"}},
      {{{"attention_bias", "\"no\""}}, {"'attention_bias'", "true or false"}},
      {{{"torch_dtype", R"("int8")"}}, {"'torch_dtype'", "int8", "bfloat16"}},
      {{{"hidden_act", R"("gelu")"}}, {"'hidden_act'", "gelu", "silu"}, kUnimplemented},
      {{{"quantization_config", R"({"quant_method":"gptq"})"}},
       {"quantization_config", "gptq", "GGUF"},
       kUnimplemented},
      {{{"architectures", mistral}, {"sliding_window", "256"}},
       {"'sliding_window'", "256"},
       kUnimplemented},
      {{{"architectures", mistral}, {"sliding_window", "0"}}, {"'sliding_window'", "0"}},
      {{{"architectures", qwen2}, {"use_sliding_window", "true"}, {"sliding_window", "64"}},
       {"'sliding_window'", "64"},
       kUnimplemented},
      {{{"architectures", qwen2}, {"layer_types", R"(["full_attention","sliding_attention"])"}},
       {"'layer_types[1]'", "sliding_attention"},
       kUnimplemented},
  };
}

TEST(ConfigTest, EveryKindOfBrokenConfigIsOneClearError) {
  for (const Broken& broken : broken_configs()) {
    SCOPED_TRACE(config_text(broken.changes));
    std::vector<std::string> words = broken.words;
    words.push_back("x/config.json");
    expect_error(broken.code, words, [&] { parse(broken.changes); });
  }
}

TEST(ConfigTest, WhatIsNoConfigFile) {
  test::TempFolder folder;
  const std::string path = folder.file("config.json");
  expect_error(StatusCode::kNotFound, {path}, [&] { read_model_config(folder.path()); });
  for (const char* text : {"", "[]", "3", "{\"hidden_size\":1,\"hidden_size\":2}", "{", "\xff"}) {
    folder.write("config.json", text);
    expect_error(StatusCode::kDataLoss, {path}, [&] { read_model_config(folder.path()); });
  }
}

GenerationConfig parse_generation(std::string_view text) {
  return parse_generation_config(JsonValue::parse(text, "g.json"));
}

TEST(GenerationConfigTest, FieldsAreRead) {
  const GenerationConfig g = parse_generation(
      R"({"bos_token_id":1,"do_sample":true,"eos_token_id":[5,6],"pad_token_id":0,"temperature":0.6,)"
      R"("top_k":20,"top_p":0.95,"min_p":0.1,"typical_p":0.9,"repetition_penalty":1.05,)"
      R"("max_new_tokens":100,"transformers_version":"4.51.0"})");
  EXPECT_EQ(g.eos_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(g.bos_token_id, 1);
  EXPECT_EQ(g.pad_token_id, 0);
  EXPECT_EQ(g.do_sample, true);
  EXPECT_EQ(g.temperature, 0.6);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.top_p, 0.95);
  EXPECT_EQ(g.min_p, 0.1);
  EXPECT_EQ(g.typical_p, 0.9);
  EXPECT_EQ(g.repetition_penalty, 1.05);
  EXPECT_EQ(g.max_new_tokens, 100);
  EXPECT_EQ(parse_generation(R"({"eos_token_id":7})").eos_token_ids, std::vector<int32_t>{7});
  EXPECT_FALSE(parse_generation(R"({"temperature":null})").temperature.has_value());
  test::TempFolder folder;
  EXPECT_TRUE(read_generation_config(folder.path()).eos_token_ids.empty());
}

TEST(GenerationConfigTest, BrokenFieldsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> broken = {
      {R"({"eos_token_id":-2})", "'eos_token_id'"},
      {R"({"eos_token_id":"x"})", "'eos_token_id'"},
      {R"({"eos_token_id":[[1]]})", "'eos_token_id[0]'"},
      {R"({"temperature":-0.5})", "'temperature'"},
      {R"({"temperature":"hot"})", "'temperature'"},
      {R"({"top_p":1.5})", "'top_p'"},
      {R"({"top_k":-1})", "'top_k'"},
      {R"({"top_k":1.5})", "'top_k'"},
      {R"({"do_sample":1})", "'do_sample'"},
      {R"({"repetition_penalty":0})", "'repetition_penalty'"},
      {R"({"max_new_tokens":0})", "'max_new_tokens'"},
      {"[]", "document"}};
  for (const auto& [text, field] : broken) {
    SCOPED_TRACE(text);
    expect_error(StatusCode::kDataLoss, {"g.json", field},
                 [&json = text] { parse_generation(json); });
  }
}

}  // namespace
}  // namespace zipage
