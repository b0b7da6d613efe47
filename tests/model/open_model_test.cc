// What a model's files say when they do not agree.
#include "model/open_model.h"

#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include "model/weights.h"
#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::safetensors;

std::string config_json(const char* architecture, const char* type, bool tied) {
  return std::string(R"({"architectures":[")") + architecture + R"("],"model_type":")" + type +
         R"(","hidden_size":2,"intermediate_size":4,"num_hidden_layers":1,"num_attention_heads":1,)"
         R"("num_key_value_heads":1,"head_dim":2,"vocab_size":2,"max_position_embeddings":8,)"
         R"("tie_word_embeddings":)" +
         (tied ? "true}" : "false}");
}

// An embedding and a head, of four bytes each.
std::string embedding_and_head(const std::string& embedding, const std::string& head) {
  return safetensors(
      R"({"model.embed_tokens.weight":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},)"
      R"("lm_head.weight":{"dtype":"U8","shape":[2,2],"data_offsets":[4,8]}})",
      embedding + head);
}

TEST(OpenModelHeadTest, AHeadOfItsOwnIsKeptWhateverTheConfigSays) {
  const std::pair<const char*, const char*> families[] = {{"LlamaForCausalLM", "llama"},
                                                          {"MistralForCausalLM", "mistral"},
                                                          {"Qwen2ForCausalLM", "qwen2"},
                                                          {"Qwen3ForCausalLM", "qwen3"}};
  for (const auto& [architecture, type] : families) {
    SCOPED_TRACE(architecture);
    test::TempFolder folder;
    folder.write("config.json", config_json(architecture, type, true));
    folder.write("model.safetensors", embedding_and_head("abcd", "abce"));
    const OpenedModel model = open_model(folder.path());
    EXPECT_FALSE(model.config.tie_word_embeddings);
    ASSERT_EQ(model.warnings.size(), 1u);
    EXPECT_THAT(model.warnings[0], testing::HasSubstr("'lm_head.weight'"));
    EXPECT_THAT(model.warnings[0], testing::HasSubstr(folder.path()));
  }
}

TEST(OpenModelHeadTest, AHeadOfAnotherShapeOrTypeIsNotTheEmbedding) {
  test::TempFolder folder;
  folder.write("config.json", config_json("LlamaForCausalLM", "llama", true));
  folder.write(
      "model.safetensors",
      safetensors(
          R"({"model.embed_tokens.weight":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},)"
          R"("lm_head.weight":{"dtype":"I8","shape":[2,2],"data_offsets":[4,8]}})",
          "abcdabcd"));
  EXPECT_FALSE(open_model(folder.path()).config.tie_word_embeddings);
}

TEST(OpenModelHeadTest, AnEqualHeadStaysTied) {
  test::TempFolder folder;
  folder.write("config.json", config_json("LlamaForCausalLM", "llama", true));
  folder.write("model.safetensors", embedding_and_head("abcd", "abcd"));
  const OpenedModel model = open_model(folder.path());
  EXPECT_TRUE(model.config.tie_word_embeddings);
  EXPECT_TRUE(model.warnings.empty());
}

TEST(OpenModelHeadTest, WithoutAHeadTheConfigDecides) {
  for (const bool tied : {false, true}) {
    test::TempFolder folder;
    folder.write("config.json", config_json("LlamaForCausalLM", "llama", tied));
    folder.write(
        "model.safetensors",
        safetensors(
            R"({"model.embed_tokens.weight":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})",
            "abcd"));
    const OpenedModel model = open_model(folder.path());
    EXPECT_EQ(model.config.tie_word_embeddings, tied);
    EXPECT_TRUE(model.warnings.empty());
  }
}

TEST(OpenModelTest, MinusOneStandsForNoToken) {
  test::TempFolder folder;
  std::string config = config_json("LlamaForCausalLM", "llama", true);
  config.back() = ',';
  folder.write("config.json", config + R"("eos_token_id":[1,-1],"bos_token_id":-1})");
  folder.write("generation_config.json", R"({"eos_token_id":-1,"bos_token_id":[1,0]})");
  const OpenedModel model = open_model(folder.path(), "dummy");
  EXPECT_EQ(model.config.eos_token_ids, std::vector<int32_t>{1});
  EXPECT_FALSE(model.config.bos_token_id.has_value());
  EXPECT_TRUE(model.generation.eos_token_ids.empty());
  EXPECT_EQ(model.generation.bos_token_id, 1);
  folder.write("generation_config.json", R"({"eos_token_id":-2})");
  test::expect_error(StatusCode::kDataLoss, {"'eos_token_id'", "-2"},
                     [&] { open_model(folder.path(), "dummy"); });
}

}  // namespace
}  // namespace zipage
