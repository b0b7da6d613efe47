// Broken tokenizer files: each is one clear error that names the file and the field.
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/gguf_vocab.h"
#include "tokenizer/hf_companions.h"
#include "tokenizer/hf_tokenizer.h"

namespace zipage {
namespace {

struct Broken {
  const char* name;
  std::string json;
  const char* field;  // what the message must name
};

// A whole tokenizer.json with `part` in place of the part of that name.
std::string file_with(const std::string& key, const std::string& part) {
  const std::pair<const char*, const char*> parts[] = {
      {"added_tokens", R"([{"id": 3, "content": "<s>", "special": true}])"},
      {"normalizer", "null"},
      {"pre_tokenizer", R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})"},
      {"post_processor", "null"},
      {"decoder", R"({"type": "ByteLevel"})"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})"}};
  std::string out = "{";
  for (const auto& [name, text] : parts) {
    if (name == key && part.empty()) continue;
    if (out.size() > 1) out += ", ";
    out += "\"" + std::string(name) + "\": " + (name == key ? part : text);
  }
  return out + "}";
}

std::string model_with(const std::string& vocab,
                       const std::string& merges,
                       const std::string& more = "") {
  return file_with(
      "model", R"({"type": "BPE", "vocab": )" + vocab + R"(, "merges": )" + merges + more + "}");
}

const char* const kVocab = R"({"a": 0, "b": 1, "ab": 2})";

std::vector<Broken> broken_files() {
  return {
      {"empty", "", "not JSON"},
      {"cut off", R"({"model": {"type": "BPE", "vocab": {"a")", "not JSON"},
      {"two values", "{} {}", "not JSON"},
      {"an array", "[]", "an object"},
      {"deep", std::string(100000, '['), "not JSON"},
      {"no model", file_with("model", ""), "model is missing"},
      {"null model", file_with("model", "null"), "model"},
      {"another model", file_with("model", R"({"type": "WordPiece", "vocab": {}})"), "model.type"},
      {"no vocab", file_with("model", R"({"type": "BPE", "merges": []})"), "model.vocab"},
      {"vocab is a list", model_with("[]", "[]"), "model.vocab"},
      {"id is text", model_with(R"({"a": "0"})", "[]"), "model.vocab"},
      {"id is negative", model_with(R"({"a": -1})", "[]"), "id -1"},
      {"id is huge", model_with(R"({"a": 4000000000})", "[]"), "4000000000"},
      {"id twice", model_with(R"({"a": 0, "b": 0})", "[]"), "id 0"},
      {"no token", R"({"model": {"vocab": {}, "merges": []}})", "model.vocab"},
      {"no merges", file_with("model", R"({"vocab": {"a": 0}})"), "model.merges"},
      {"merge of one", model_with(kVocab, R"(["a"])"), "model.merges[0]"},
      {"merge of three", model_with(kVocab, R"(["a b", "a b c"])"), "model.merges[1]"},
      {"merge is a number", model_with(kVocab, "[5]"), "model.merges[0]"},
      {"merge of a stranger", model_with(kVocab, R"(["a x"])"), "\"x\""},
      {"merge without result", model_with(kVocab, R"([["b", "a"]])"), "\"ba\""},
      {"unknown unk", model_with(kVocab, "[]", R"(, "unk_token": "<unk>")"), "model.unk_token"},
      {"flag is text", model_with(kVocab, "[]", R"(, "ignore_merges": "yes")"),
       "model.ignore_merges"},
      {"dropout", model_with(kVocab, "[]", R"(, "dropout": 0.1)"), "model.dropout"},
      {"suffix", model_with(kVocab, "[]", R"(, "end_of_word_suffix": "</w>")"),
       "end_of_word_suffix"},
      {"added without id", file_with("added_tokens", R"([{"content": "x"}])"),
       "added_tokens[0].id"},
      {"added without text", file_with("added_tokens", R"([{"id": 9, "content": ""}])"),
       "added_tokens[0]"},
      {"added with another id", file_with("added_tokens", R"([{"id": 9, "content": "a"}])"),
       "added_tokens[0]"},
      {"added over a token", file_with("added_tokens", R"([{"id": 0, "content": "x"}])"),
       "added_tokens[0]"},
      {"added is an object", file_with("added_tokens", "{}"), "added_tokens"},
      {"normalizer", file_with("normalizer", R"({"type": "Precompiled"})"), "normalizer"},
      {"normalizer without type", file_with("normalizer", "{}"), "normalizer.type"},
      {"pre-tokenizer", file_with("pre_tokenizer", R"({"type": "UnicodeScripts"})"),
       "pre_tokenizer"},
      {"pattern",
       file_with("pre_tokenizer",
                 R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})"),
       "pre_tokenizer.pattern.Regex"},
      {"behavior",
       file_with("pre_tokenizer",
                 R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Shuffled"})"),
       "pre_tokenizer.behavior"},
      {"step after bytes",
       file_with(
           "pre_tokenizer",
           R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})"),
       "pre_tokenizer.pretokenizers[1]"},
      {"post-processor", file_with("post_processor", R"({"type": "Magic"})"), "post_processor"},
      {"template id",
       file_with("post_processor",
                 R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],)"
                 R"( "special_tokens": {"x": {"ids": [77]}}})"),
       "post_processor.special_tokens.x.ids[0]"},
      {"decoder", file_with("decoder", R"({"type": "CTC"})"), "decoder"},
      {"strip",
       file_with("decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
       "decoder"},
  };
}

void expect_error(const std::string& name, const char* field, const std::function<void()>& load) {
  try {
    load();
    ADD_FAILURE() << name << ": loads";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("the.file"), std::string::npos) << name << ": " << message;
    EXPECT_NE(message.find(field), std::string::npos) << name << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << name << ": " << message;
    EXPECT_LT(message.size(), 600u) << name << ": " << message;
  }
}

TEST(BrokenFiles, TheWholeOneLoads) {
  const auto tokenizer =
      make_tokenizer(read_tokenizer_json(file_with("", ""), "the.file"), "the.file");
  EXPECT_EQ(tokenizer->encode("ab<s>ba"), (std::vector<int32_t>{2, 3, 1, 0}));
}

TEST(BrokenFiles, TokenizerJson) {
  for (const Broken& broken : broken_files()) {
    expect_error(broken.name, broken.field, [&] { read_tokenizer_json(broken.json, "the.file"); });
  }
}

TEST(BrokenFiles, TokenizerConfig) {
  const Broken broken[] = {
      {"not JSON", "{", "not JSON"},
      {"a list", "[]", "an object"},
      {"list of tokens", R"({"additional_special_tokens": [5]})", "additional_special_tokens[0]"},
      {"added token", R"({"added_tokens_decoder": {"4": {}}})", "added_tokens_decoder.4.content"},
      {"added id", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})", "\"x\""},
      {"token without content", R"({"bos_token": {}})", "bos_token.content"},
      {"template is a number", R"({"chat_template": 5})", "chat_template"},
      {"template without name", R"({"chat_template": [{"template": "x"}]})",
       "chat_template[0].name"},
      {"flag", R"({"add_bos_token": 1})", "add_bos_token"},
  };
  for (const Broken& item : broken) {
    TokenizerParts parts = read_tokenizer_json(file_with("", ""), "tokenizer.json");
    expect_error(item.name, item.field, [&] {
      read_companion_files({NamedText{item.json, "the.file"}}, parts);
    });
  }
}

TEST(BrokenFiles, OldCompanions) {
  TokenizerParts parts = read_tokenizer_json(file_with("", ""), "tokenizer.json");
  expect_error("special_tokens_map", "eos_token.content", [&] {
    read_companion_files({.special_tokens_map = NamedText{R"({"eos_token": {}})", "the.file"}},
                         parts);
  });
  expect_error("added_tokens", "<x>", [&] {
    read_companion_files({.added_tokens = NamedText{R"({"<x>": "5"})", "the.file"}}, parts);
  });
}

VocabData whole_vocab() {
  VocabData vocab;
  vocab.model = "gpt2";
  vocab.pre = "gpt-2";
  vocab.tokens = {"a", "b", "ab", "<s>"};
  vocab.token_types = {1, 1, 1, 3};
  vocab.merges = {"a b"};
  return vocab;
}

TEST(BrokenFiles, GgufVocabulary) {
  const auto tokenizer = make_tokenizer(make_tokenizer_parts(whole_vocab(), "x"), "x");
  EXPECT_EQ(tokenizer->encode("ab<s>b"), (std::vector<int32_t>{2, 3, 1}));
  const struct {
    const char* name;
    const char* field;
    std::function<void(VocabData&)> breaks;
  } broken[] = {
      {"no model", "tokenizer.ggml.model", [](VocabData& v) { v.model.clear(); }},
      {"another model", "tokenizer.ggml.model", [](VocabData& v) { v.model = "bert"; }},
      {"another cut", "tokenizer.ggml.pre", [](VocabData& v) { v.pre = "nobody"; }},
      {"no tokens", "tokenizer.ggml.tokens", [](VocabData& v) { v.tokens.clear(); }},
      {"few types", "tokenizer.ggml.token_type", [](VocabData& v) { v.token_types.pop_back(); }},
      {"a wrong type", "tokenizer.ggml.token_type", [](VocabData& v) { v.token_types[0] = 9; }},
      {"few scores", "tokenizer.ggml.scores", [](VocabData& v) { v.scores = {1}; }},
      {"no scores", "tokenizer.ggml.scores", [](VocabData& v) { v.model = "llama"; }},
      {"broken text", "tokenizer.ggml.tokens", [](VocabData& v) { v.tokens[0] = "\xFF"; }},
      {"no merges", "tokenizer.ggml.merges", [](VocabData& v) { v.merges.clear(); }},
      {"merge of one", "tokenizer.ggml.merges", [](VocabData& v) { v.merges[0] = "ab"; }},
      {"bos", "tokenizer.ggml.bos_token_id", [](VocabData& v) { v.bos_id = 4; }},
      {"eos", "tokenizer.ggml.eos_token_id", [](VocabData& v) { v.eos_id = 99; }},
  };
  for (const auto& item : broken) {
    VocabData vocab = whole_vocab();
    item.breaks(vocab);
    expect_error(item.name, item.field, [&] { make_tokenizer_parts(vocab, "the.file"); });
  }
}

// Files that work but whose tokens may be wrong say so.
TEST(BrokenFiles, GgufVocabulariesThatWarn) {
  const auto warnings = [](const VocabData& vocab) {
    return make_tokenizer(make_tokenizer_parts(vocab, "the.file"), "the.file")->warnings();
  };
  VocabData vocab = whole_vocab();
  EXPECT_TRUE(warnings(vocab).empty());
  vocab.pre = "";
  ASSERT_EQ(warnings(vocab).size(), 1u);
  EXPECT_NE(warnings(vocab)[0].find("tokenizer.ggml.pre"), std::string::npos);
  EXPECT_NE(warnings(vocab)[0].find("the.file"), std::string::npos);
  vocab = whole_vocab();
  vocab.token_types.clear();
  ASSERT_EQ(warnings(vocab).size(), 1u);
  EXPECT_NE(warnings(vocab)[0].find("tokenizer.ggml.token_type"), std::string::npos);
}

TEST(BrokenFiles, GgufBytes) {
  for (const std::string bytes : {"", "GG", "GGUF", "GGML12345678", "GGUF\x01\0\0\0"}) {
    expect_error("bytes", "the.file", [&] { parse_gguf_vocab(bytes, "the.file"); });
  }
}

}  // namespace
}  // namespace zipage
