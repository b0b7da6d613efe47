// A folder with the config.json of a model of two layers, for engines with dummy weights: steps
// take microseconds.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace zipage::testing {

class TinyModel {
 public:
  static constexpr int kVocab = 96;

  TinyModel()
      : path_((std::filesystem::temp_directory_path() /
               ("zipage_tiny_" + std::to_string(::getpid()) + "_" +
                std::to_string(reinterpret_cast<uintptr_t>(this))))
                  .string()) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/config.json") << R"({"architectures": ["Qwen3ForCausalLM"],
      "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
      "max_position_embeddings": 1024, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false,
      "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2})";
  }
  ~TinyModel() { std::filesystem::remove_all(path_); }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace zipage::testing
