#include "model/gguf_config.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::bytes_of;
using test::expect_error;
using test::GgufBuilder;

// Metadata of a small Llama; `leave_out` names one key to drop, `change` adds keys and tensors.
class GgufConfigTest : public testing::Test {
 protected:
  using Change = std::function<void(GgufBuilder&)>;

  std::unique_ptr<GgufSource> open(const std::string& leave_out, const Change& change) {
    GgufBuilder file;
    const auto u32 = [&](const std::string& key, uint32_t value) {
      if (key != leave_out) file.u32(key, value);
    };
    if (leave_out != "general.architecture") file.string("general.architecture", "llama");
    u32("llama.embedding_length", 64);
    u32("llama.feed_forward_length", 96);
    u32("llama.block_count", 2);
    u32("llama.context_length", 512);
    u32("llama.attention.head_count", 4);
    u32("llama.attention.head_count_kv", 2);
    u32("llama.rope.dimension_count", 16);
    u32("tokenizer.ggml.eos_token_id", 2);
    change(file);
    if (leave_out != "token_embd.weight") {
      file.tensor("token_embd.weight", {64, 10}, 1, std::string(1280, '\0'));
    }
    path_ = folder_.write("m.gguf", file.build());
    return GgufSource::open(path_);
  }
  ModelConfig parse(const Change& change = [](GgufBuilder&) {}) {
    return parse_gguf_config(*open("", change));
  }
  void expect(
      StatusCode code,
      const std::string& leave_out,
      const std::vector<std::string>& words,
      const Change& change = [](GgufBuilder&) {}) {
    SCOPED_TRACE(testing::PrintToString(words));
    const auto source = open(leave_out, change);
    std::vector<std::string> all = words;
    all.push_back(path_);
    expect_error(code, all, [&] { parse_gguf_config(*source); });
  }

  test::TempFolder folder_;
  std::string path_;
};

TEST_F(GgufConfigTest, Fields) {
  const ModelConfig c = parse();
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.vocab_size, 10);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_TRUE(c.tie_word_embeddings && c.interleaved_qk);
  EXPECT_FALSE(c.attention_bias || c.output_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.dtype, DType::kF16);
  EXPECT_EQ(
      parse_gguf_config(*open("llama.attention.head_count_kv", [](GgufBuilder&) {})).num_kv_heads,
      4);
}

TEST_F(GgufConfigTest, EveryEndOfTurnEnds) {
  const Change eot = [](GgufBuilder& f) {
    f.u32("tokenizer.ggml.eot_token_id", 7).u32("tokenizer.ggml.eom_token_id", 2);
    f.u32("tokenizer.ggml.bos_token_id", 0xffffffffu).f32("general.sampling.temp", 0.5f);
    f.raw_key("general.sampling.top_k", 5, bytes_of<int32_t>(40));
  };
  const auto source = open("", eot);
  const ModelConfig c = parse_gguf_config(*source);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_FALSE(c.bos_token_id.has_value());
  const GenerationConfig g = parse_gguf_generation_config(source->file());
  EXPECT_EQ(g.eos_token_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(g.temperature, 0.5);
  EXPECT_EQ(g.top_k, 40);
}

TEST_F(GgufConfigTest, RopeScaling) {
  const RopeConfig linear =
      parse([](GgufBuilder& f) {
        f.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4.0f);
      }).rope;
  EXPECT_EQ(linear.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.factor, 4.0);
  EXPECT_EQ(parse([](GgufBuilder& f) { f.f32("llama.rope.scale_linear", 2.0f); }).rope.factor, 2.0);
  EXPECT_EQ(parse([](GgufBuilder& f) { f.string("llama.rope.scaling.type", "none"); }).rope.scaling,
            RopeScaling::kNone);
  const RopeConfig yarn =
      parse([](GgufBuilder& f) {
        f.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0f);
        f.u32("llama.rope.scaling.original_context_length", 128);
      }).rope;
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.original_max_position_embeddings, 128);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1.0);
}

// Llama 3: the divisors of a file equal the scaling of a config.json.
TEST_F(GgufConfigTest, FrequencyDivisorsAreApplied) {
  ModelConfig llama3 = parse();
  const std::vector<double> plain = rope_frequencies(llama3, 512);
  llama3.rope.scaling = RopeScaling::kLlama3;
  llama3.rope.factor = 8.0;
  llama3.rope.original_max_position_embeddings = 128;
  const std::vector<double> scaled = rope_frequencies(llama3, 512);
  std::string divisors;
  for (size_t i = 0; i < plain.size(); ++i)
    divisors += bytes_of(static_cast<float>(plain[i] / scaled[i]));
  const ModelConfig c =
      parse([&](GgufBuilder& f) { f.tensor("rope_freqs.weight", {8}, 0, divisors); });
  const std::vector<double> actual = rope_frequencies(c, 512);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i] / scaled[i], 1.0, 0x1p-24);
  EXPECT_EQ(actual[0], 1.0);
  EXPECT_NEAR(actual[7] / plain[7], 1.0 / 8, 1e-6);
}

TEST_F(GgufConfigTest, BrokenMetadataIsOneClearError) {
  for (const char* key :
       {"general.architecture", "llama.embedding_length", "llama.feed_forward_length",
        "llama.block_count", "llama.context_length", "llama.attention.head_count"}) {
    expect(StatusCode::kDataLoss, key, {std::string("'") + key + "'", "missing"});
  }
  expect(StatusCode::kNotFound, "token_embd.weight", {"'token_embd.weight'", "missing"});
  const auto instead = [&](StatusCode code, const std::string& key,
                           const std::vector<std::string>& words, uint32_t value) {
    expect(code, key, words, [&](GgufBuilder& f) { f.u32(key, value); });
  };
  instead(StatusCode::kDataLoss, "llama.embedding_length", {"'llama.embedding_length'", "0"}, 0);
  instead(StatusCode::kDataLoss, "llama.embedding_length",
          {"'llama.embedding_length'", "4294967295"}, 0xffffffffu);
  instead(StatusCode::kDataLoss, "llama.embedding_length",
          {"'llama.embedding_length'", "66", "4 heads"}, 66);
  instead(StatusCode::kDataLoss, "llama.attention.head_count_kv", {"4 query heads", "3"}, 3);
  instead(StatusCode::kDataLoss, "llama.rope.dimension_count", {"15 of head_dim 16"}, 15);
  instead(StatusCode::kDataLoss, "llama.rope.dimension_count", {"32 of head_dim 16"}, 32);
  instead(StatusCode::kDataLoss, "tokenizer.ggml.eos_token_id", {"10", "vocab_size is 10"}, 10);
  const auto with = [&](StatusCode code, const std::vector<std::string>& words,
                        const Change& change) { expect(code, "", words, change); };
  with(StatusCode::kDataLoss, {"'llama.rope.freq_base'", "nan"},
       [](GgufBuilder& f) { f.f32("llama.rope.freq_base", std::nanf("")); });
  with(StatusCode::kDataLoss, {"layer_norm_rms_epsilon", "-1"},
       [](GgufBuilder& f) { f.f32("llama.attention.layer_norm_rms_epsilon", -1.0f); });
  with(StatusCode::kUnimplemented, {"'llama.rope.scaling.type'", "longrope", "yarn"},
       [](GgufBuilder& f) { f.string("llama.rope.scaling.type", "longrope"); });
  with(StatusCode::kDataLoss, {"'rope_freqs.weight'", "[4]", "[8]"},
       [](GgufBuilder& f) { f.tensor("rope_freqs.weight", {4}, 0, std::string(16, 'x')); });
  with(StatusCode::kDataLoss, {"'rope_freqs.weight'", "0", "positive"},
       [](GgufBuilder& f) { f.tensor("rope_freqs.weight", {8}, 0, std::string(32, '\0')); });
  with(StatusCode::kUnimplemented, {"'llama.expert_count'", "8", "experts"},
       [](GgufBuilder& f) { f.u32("llama.expert_count", 8); });
  with(StatusCode::kUnimplemented, {"sliding_window", "64"},
       [](GgufBuilder& f) { f.u32("llama.attention.sliding_window", 64); });
  with(StatusCode::kUnimplemented, {"key_length", "16", "value_length", "8"}, [](GgufBuilder& f) {
    f.u32("llama.attention.key_length", 16).u32("llama.attention.value_length", 8);
  });
  expect(StatusCode::kUnimplemented, "general.architecture", {"'gpt2'", "llama, qwen2, qwen3"},
         [](GgufBuilder& f) { f.string("general.architecture", "gpt2"); });
  expect(StatusCode::kDataLoss, "general.architecture", {"'general.architecture'", "u32", "string"},
         [](GgufBuilder& f) { f.u32("general.architecture", 1); });
  expect(StatusCode::kDataLoss, "llama.block_count", {"'llama.block_count'", "string", "integer"},
         [](GgufBuilder& f) { f.string("llama.block_count", "2"); });
}

}  // namespace
}  // namespace zipage
