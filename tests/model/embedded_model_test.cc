// The model that comes with the repository: config, weights and RoPE table.
#include <cmath>
#include <gtest/gtest.h>
#include <string>

#include "model/open_model.h"
#include "model/weights.h"
#include "support/source.h"

namespace zipage {
namespace {

const std::string kFolder = test::source_path("models/reasoner-16m");

TEST(EmbeddedModelTest, ConfigIsRead) {
  const ModelConfig c = read_model_config(kFolder);
  EXPECT_EQ(c.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(c.hidden_size, 384);
  EXPECT_EQ(c.intermediate_size, 1024);
  EXPECT_EQ(c.num_layers, 10);
  EXPECT_EQ(c.num_q_heads, 6);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.vocab_size, 320);
  EXPECT_EQ(c.max_position_embeddings, 8192);
  EXPECT_EQ(c.max_context_tokens(), 8192);
  EXPECT_DOUBLE_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.rope.rotary_dim, 64);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(c.attention_bias);
  EXPECT_EQ(c.eos_token_ids, std::vector<int32_t>{258});
  EXPECT_EQ(c.bos_token_id, 256);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_FLOAT_EQ(c.attention_scale(), 0.125f);
}

TEST(EmbeddedModelTest, GenerationConfigIsRead) {
  const GenerationConfig g = read_generation_config(kFolder);
  EXPECT_EQ(g.eos_token_ids, (std::vector<int32_t>{258, 256}));
  EXPECT_EQ(g.do_sample, false);
  EXPECT_EQ(g.temperature, 0.0);
  EXPECT_FALSE(g.top_k.has_value());
}

TEST(EmbeddedModelTest, WeightsAreComplete) {
  const OpenedModel model = open_model(kFolder);
  const ModelWeights weights = load_model_weights(*model.weights, model.config);
  EXPECT_EQ(model.weights->total_bytes(), 31721728);  // metadata.total_size of the index
  ASSERT_EQ(weights.layers.size(), 10u);
  EXPECT_TRUE(weights.unused.empty());
  EXPECT_EQ(weights.lm_head.data, weights.embedding.data);
  EXPECT_EQ(weights.layers[9].q_proj.shape, (Shape{384, 384}));
  EXPECT_TRUE(weights.layers[9].qkv_bias().empty());
  for (int32_t layer = 0; layer < 10; ++layer) weights.fetch_layer(layer);
  for (const LayerWeights& layer : weights.layers) {
    double sum = 0;
    for (const float value : to_f32(layer.input_norm)) {
      ASSERT_TRUE(std::isfinite(value));
      sum += value;
    }
    EXPECT_GT(sum, 0);
  }
}

TEST(EmbeddedModelTest, RopeTableHoldsCosThenSin) {
  const ModelConfig config = read_model_config(kFolder);
  const std::vector<float> table = rope_table(config, 100);
  ASSERT_EQ(table.size(), 6400u);
  for (int position : {0, 1, 99}) {
    for (int i : {0, 1, 31}) {
      const double angle = position / std::pow(10000.0, 2.0 * i / 64);
      EXPECT_FLOAT_EQ(table[static_cast<size_t>(position * 64 + i)],
                      static_cast<float>(std::cos(angle)));
      EXPECT_FLOAT_EQ(table[static_cast<size_t>(position * 64 + 32 + i)],
                      static_cast<float>(std::sin(angle)));
    }
  }
}

}  // namespace
}  // namespace zipage
