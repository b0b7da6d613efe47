#include "model/weights.h"

#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <memory>

#include "model/dummy_weights.h"
#include "model/families/tensor_names.h"
#include "model/open_model.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/source.h"

namespace zipage {
namespace {

using test::expect_error;

ModelConfig small_config() {
  ModelConfig c;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_layers = 2;
  c.num_q_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 4;
  c.vocab_size = 10;
  c.rope.rotary_dim = 4;
  return c;
}

// Holds what a test puts in.
class MapSource : public WeightSource {
 public:
  explicit MapSource(WeightNaming naming) : WeightSource("x"), naming_(naming) {}
  WeightNaming naming() const override { return naming_; }
  void release(const HostTensor& tensor) const override { released.push_back(tensor.name); }
  void put(const std::string& name, const Shape& shape, DType dtype = DType::kF32) {
    Entry entry;
    entry.file = "x/file";
    entry.tensor = {name, dtype, shape, zeros_.data()};
    add(std::move(entry));
  }
  mutable std::vector<std::string> released;

 private:
  WeightNaming naming_;
  std::vector<std::byte> zeros_ = std::vector<std::byte>(4096);
};

// All tensors of the small config; `changes` give another shape, an empty one leaves a tensor out.
std::unique_ptr<MapSource> small_source(const std::map<std::string, Shape>& changes,
                                        WeightNaming naming = WeightNaming::kHuggingFace) {
  auto source = std::make_unique<MapSource>(naming);
  const auto put = [&](TensorRole role, int32_t layer, const Shape& shape) {
    const std::string name = tensor_name(naming, role, layer);
    const auto change = changes.find(name);
    if (change == changes.end()) {
      source->put(name, shape);
    } else if (!change->second.empty()) {
      source->put(name, change->second);
    }
  };
  put(TensorRole::kEmbedding, 0, {10, 8});
  put(TensorRole::kFinalNorm, 0, {8});
  put(TensorRole::kLmHead, 0, {10, 8});
  for (int32_t layer = 0; layer < 2; ++layer) {
    put(TensorRole::kInputNorm, layer, {8});
    put(TensorRole::kPostAttentionNorm, layer, {8});
    put(TensorRole::kQ, layer, {8, 8});
    put(TensorRole::kK, layer, {4, 8});
    put(TensorRole::kV, layer, {4, 8});
    put(TensorRole::kO, layer, {8, 8});
    put(TensorRole::kGate, layer, {12, 8});
    put(TensorRole::kUp, layer, {12, 8});
    put(TensorRole::kDown, layer, {8, 12});
  }
  return source;
}

TEST(WeightsTest, NamesOfBothKindsOfFiles) {
  const ModelConfig config = small_config();
  for (const WeightNaming naming : {WeightNaming::kHuggingFace, WeightNaming::kGguf}) {
    const auto source = small_source({}, naming);
    const ModelWeights weights = load_model_weights(*source, config);
    EXPECT_EQ(weights.layers.size(), 2u);
    EXPECT_EQ(weights.unused, std::vector<std::string>{});
  }
  EXPECT_EQ(tensor_name(WeightNaming::kHuggingFace, TensorRole::kQ, 3),
            "model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(tensor_name(WeightNaming::kGguf, TensorRole::kDown, 11), "blk.11.ffn_down.weight");
}

TEST(WeightsTest, EveryTensorIsRequiredInItsShape) {
  const ModelConfig config = small_config();
  for (const std::string& name : small_source({})->names()) {
    SCOPED_TRACE(name);
    const auto without = small_source({{name, {}}});
    expect_error(StatusCode::kNotFound, {"x", "'" + name + "'", "missing"},
                 [&] { load_model_weights(*without, config); });
    const auto wrong = small_source({{name, {5, 7}}});
    const std::string expected = to_string(small_source({})->find(name)->shape);
    expect_error(StatusCode::kDataLoss, {"x/file", "'" + name + "'", "[5, 7]", expected},
                 [&] { load_model_weights(*wrong, config); });
  }
}

TEST(WeightsTest, ATransposedMatrixIsAWrongShape) {
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const auto source = small_source({{name, {12, 8}}});
  expect_error(StatusCode::kDataLoss, {"'" + name + "'", "[12, 8]", "[8, 12]"},
               [&] { load_model_weights(*source, small_config()); });
}

TEST(WeightsTest, ATiedHeadIsTheEmbedding) {
  ModelConfig config = small_config();
  config.tie_word_embeddings = true;
  const auto source = small_source({{"lm_head.weight", {}}});
  const ModelWeights weights = load_model_weights(*source, config);
  EXPECT_EQ(weights.lm_head.name, "model.embed_tokens.weight");
}

TEST(WeightsTest, ABiasThatTheConfigDeniesIsAnError) {
  const auto source = small_source({});
  const std::string name = "model.layers.0.self_attn.k_proj.bias";
  source->put(name, {4});
  expect_error(StatusCode::kDataLoss, {"'" + name + "'", "attention_bias"},
               [&] { load_model_weights(*source, small_config()); });
}

TEST(WeightsTest, TensorsWithoutARoleAreListed) {
  const auto source = small_source({});
  source->put("model.layers.2.self_attn.q_proj.weight", {8, 8});
  source->put("model.layers.0.self_attn.rotary_emb.inv_freq", {2});
  const ModelWeights weights = load_model_weights(*source, small_config());
  EXPECT_EQ(weights.unused, std::vector<std::string>{"model.layers.2.self_attn.q_proj.weight"});
}

TEST(WeightsTest, AReleasedLayerIsEmptyAndItsPagesAreGivenBack) {
  const auto source = small_source({});
  ModelWeights weights = load_model_weights(*source, small_config());
  weights.release_layer(1);
  EXPECT_EQ(source->released.size(), 9u);
  EXPECT_EQ(source->released[2], "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(weights.layers[1].q_proj.data, nullptr);
  EXPECT_NE(weights.layers[0].q_proj.data, nullptr);
  weights.release_rest();
  EXPECT_EQ(source->released.size(), 12u);
}

TEST(WeightsTest, AnElementTypeOfNoUseIsNamed) {
  const auto source = small_source({{"model.embed_tokens.weight", {}}});
  source->put("model.embed_tokens.weight", {10, 8}, DType::kI8);
  expect_error(StatusCode::kUnimplemented, {"'model.embed_tokens.weight'", "i8", "float"},
               [&] { load_model_weights(*source, small_config()); });
  const auto packed = small_source({{"model.norm.weight", {}}});
  packed->put("model.norm.weight", {8}, DType::kF8E4M3);
  expect_error(StatusCode::kUnimplemented, {"'model.norm.weight'", "f8_e4m3", "float"},
               [&] { load_model_weights(*packed, small_config()); });
}

// Rows 2i and 2i + 1 of a head come to i and i + head_dim / 2, whatever the element type.
TEST(WeightsTest, DeinterleavedRowsMoveWhole) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0, DType::kQ4_K}) {
    const int64_t columns = 2 * packed_block_elements(dtype);
    const int64_t row_bytes = dtype_bytes(dtype, columns);
    std::vector<std::byte> bytes(static_cast<size_t>(12 * row_bytes));
    for (int64_t row = 0; row < 12; ++row) {
      std::memset(bytes.data() + row * row_bytes, static_cast<int>(row),
                  static_cast<size_t>(row_bytes));
    }
    const HostTensor tensor{"q", dtype, {12, columns}, bytes.data()};
    const auto moved = deinterleave_rows(tensor, 6);
    const std::vector<int> expected = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    for (int64_t row = 0; row < 12; ++row) {
      for (int64_t i = 0; i < row_bytes; ++i) {
        ASSERT_EQ(std::to_integer<int>(moved[row * row_bytes + i]),
                  expected[static_cast<size_t>(row)]);
      }
    }
  }
}

TEST(DummyWeightsTest, EveryTensorOfEveryFlagIsThere) {
  for (const int flags : {0, 1, 2, 4, 8, 16, 31}) {
    ModelConfig c = small_config();
    c.tie_word_embeddings = (flags & 1) != 0;
    c.attention_bias = (flags & 2) != 0;
    c.output_bias = (flags & 4) != 0;
    c.mlp_bias = (flags & 8) != 0;
    c.qk_norm = (flags & 16) != 0;
    c.dtype = DType::kBF16;
    const auto source = make_dummy_weights("x", c);
    const ModelWeights weights = load_model_weights(*source, c);
    EXPECT_TRUE(weights.unused.empty());
    EXPECT_EQ(weights.layers[0].qkv_bias().size(), c.attention_bias ? 3u : 0u);
    EXPECT_EQ(weights.layers[0].o_bias().size(), c.output_bias ? 1u : 0u);
    EXPECT_EQ(weights.layers[0].gate_up_bias().size(), c.mlp_bias ? 2u : 0u);
    EXPECT_EQ(weights.layers[0].down_bias().size(), c.mlp_bias ? 1u : 0u);
    EXPECT_EQ(to_f32(weights.final_norm), std::vector<float>(8, 1.0f));
  }
}

TEST(OpenModelTest, PathsThatAreNoModel) {
  test::TempFolder folder;
  const std::string nowhere = folder.file("nowhere");
  for (const char* format : {"auto", "safetensors", "gguf", "dummy"}) {
    expect_error(StatusCode::kNotFound, {nowhere}, [&] { open_model(nowhere, format); });
  }
  expect_error(StatusCode::kNotFound, {folder.path()}, [&] { open_model(folder.path()); });
  expect_error(StatusCode::kInvalidArgument, {folder.path(), "directory"},
               [&] { open_model(folder.path(), "gguf"); });
  const std::string text = folder.write("m.gguf", "hello, world");
  expect_error(StatusCode::kDataLoss, {text, "GGUF"}, [&] { open_model(text); });
  expect_error(StatusCode::kInvalidArgument, {"'bin'", "dummy"},
               [&] { open_model(folder.path(), "bin"); });
}

TEST(OpenModelTest, DummyWeightsNeedTheConfigAlone) {
  test::TempFolder folder;
  const std::string model = test::source_path("models/reasoner-16m");
  folder.write("config.json", test::read_file(model + "/config.json"));
  const OpenedModel opened = open_model(folder.path(), "dummy");
  const ModelWeights weights = load_model_weights(*opened.weights, opened.config);
  EXPECT_EQ(weights.embedding.dtype, DType::kBF16);
  EXPECT_EQ(weights.layers.size(), 10u);
  EXPECT_TRUE(opened.generation.eos_token_ids.empty());
}

}  // namespace
}  // namespace zipage
