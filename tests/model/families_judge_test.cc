// Models of every family as transformers and gguf write them.
#include <cmath>
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "model/open_model.h"
#include "model/weights.h"
#include "support/judge.h"
#include "tensor/dequantize.h"
#include "weights/json.h"

namespace zipage {
namespace {

std::vector<float> values(const HostTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(num_elements(tensor.shape)));
  dequantize(tensor, out);
  return out;
}

// Every tensor of a layer, by its member's name.
std::vector<std::pair<std::string, std::optional<HostTensor>>> tensors(const LayerWeights& w) {
  const auto if_present = [](const HostTensor& tensor) {
    return tensor.data == nullptr ? std::nullopt : std::optional(tensor);
  };
  return {{"input_norm", w.input_norm},
          {"post_attention_norm", w.post_attention_norm},
          {"q_proj", w.q_proj},
          {"k_proj", w.k_proj},
          {"v_proj", w.v_proj},
          {"o_proj", w.o_proj},
          {"gate_proj", w.gate_proj},
          {"up_proj", w.up_proj},
          {"down_proj", w.down_proj},
          {"q_norm", if_present(w.q_norm)},
          {"k_norm", if_present(w.k_norm)},
          {"q_bias", w.q_bias},
          {"k_bias", w.k_bias},
          {"v_bias", w.v_bias},
          {"o_bias", w.o_proj_bias},
          {"gate_bias", w.gate_bias},
          {"up_bias", w.up_bias},
          {"down_bias", w.down_proj_bias}};
}

// A Q8_0 value is off by at most half a step, a 127th of its block's largest value, and by the
// rounding of the step to f16, 2^-11 of the value.
void expect_near(const std::vector<float>& actual,
                 const std::vector<float>& expected,
                 bool packed) {
  ASSERT_EQ(actual.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::fabs(value));
  const float tolerance = packed ? largest * (0.5f / 127.0f + 0x1p-11f) * 1.001f : 0.0f;
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
}

void fetch_all(const ModelWeights& weights) {
  weights.fetch_rest();
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    weights.fetch_layer(static_cast<int32_t>(layer));
  }
}

TEST(FamiliesJudgeTest, FoldersAndGgufFilesHoldTheSameModel) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  test::TempFolder folder;
  ASSERT_EQ(test::run_judge("model/families_judge.py", folder), "");
  for (const JsonValue& asked : JsonValue::read(folder.file("models.json")).elements()) {
    const std::string name = asked.at("name").as_string();
    SCOPED_TRACE(name);
    const OpenedModel hub = open_model(folder.file(name));
    const ModelWeights w = load_model_weights(*hub.weights, hub.config);
    EXPECT_EQ(w.unused, std::vector<std::string>{});
    fetch_all(w);
    EXPECT_EQ(hub.config.architecture, asked.at("architecture").as_string());
    EXPECT_EQ(hub.weights->total_bytes(), 4 * asked.at("parameters").as_int(1, 1 << 30));
    EXPECT_EQ(asked.at("shards").as_int(1, 100) > 1, name == "llama");
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(packed ? "q8_0" : "f32");
      const OpenedModel gguf = open_model(folder.file(name + (packed ? "-q8.gguf" : ".gguf")));
      const ModelConfig& a = hub.config;
      const ModelConfig& b = gguf.config;
      EXPECT_EQ(a.hidden_size, b.hidden_size);
      EXPECT_EQ(a.num_layers, b.num_layers);
      EXPECT_EQ(a.head_dim, b.head_dim);
      EXPECT_EQ(a.num_q_heads, b.num_q_heads);
      EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
      EXPECT_EQ(a.vocab_size, b.vocab_size);
      EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
      EXPECT_FLOAT_EQ(static_cast<float>(a.rms_norm_eps), static_cast<float>(b.rms_norm_eps));
      EXPECT_EQ(a.rope.theta, b.rope.theta);
      EXPECT_EQ(a.rope.rotary_dim, b.rope.rotary_dim);
      EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
      EXPECT_EQ(a.attention_bias, b.attention_bias);
      EXPECT_EQ(a.output_bias, b.output_bias);
      EXPECT_EQ(a.mlp_bias, b.mlp_bias);
      EXPECT_EQ(a.qk_norm, b.qk_norm);
      EXPECT_EQ(a.eos_token_ids, b.eos_token_ids);
      EXPECT_EQ(a.bos_token_id, b.bos_token_id);
      EXPECT_EQ(gguf.generation.eos_token_ids, std::vector<int32_t>{2});
      const ModelWeights g = load_model_weights(*gguf.weights, b);
      EXPECT_EQ(g.unused, std::vector<std::string>{});
      fetch_all(g);
      expect_near(values(g.embedding), values(w.embedding), packed);
      expect_near(values(g.lm_head), values(w.lm_head), packed);
      expect_near(values(g.final_norm), values(w.final_norm), false);
      for (size_t layer = 0; layer < w.layers.size(); ++layer) {
        const auto expected = tensors(w.layers[layer]);
        const auto actual = tensors(g.layers[layer]);
        for (size_t i = 0; i < expected.size(); ++i) {
          SCOPED_TRACE(expected[i].first);
          ASSERT_EQ(actual[i].second.has_value(), expected[i].second.has_value());
          if (!expected[i].second) continue;
          EXPECT_EQ(actual[i].second->shape, expected[i].second->shape);
          expect_near(values(*actual[i].second), values(*expected[i].second),
                      is_packed(actual[i].second->dtype));
        }
      }
    }
  }
}

}  // namespace
}  // namespace zipage
