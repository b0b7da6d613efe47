// What `zipage bench serve` asks: requests made up, or read from files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/load_generator.h"

namespace zipage::cli {

struct DatasetOptions {
  std::string endpoint = "/v1/completions", model;
  // One of the three files, or none for random prompts.
  std::string problems_path, trace_path, batch_path;
  int64_t num_prompts = 1000;
  bool num_prompts_given =
      false;  // files: only the first so many, the file again when it is shorter
  int64_t input_len = 1024, output_len = 128, prefix_len = 0;
  double range_ratio = 0;    // random lengths are drawn from len * [1 - r, 1 + r]
  int64_t vocab_size = 256;  // ids of random prompts are below it
  bool output_len_given = false;
  bool stream = true, ignore_eos = false, return_token_ids = false;
  std::optional<double> temperature = 0;
  uint64_t seed = 0;
};

// Throws Error naming the flag, or the file, line and field.
std::vector<LoadRequest> make_requests(const DatasetOptions& options);

struct ExpectedAnswer {
  std::string text;
  std::vector<int32_t> token_ids;  // empty: not compared
};
// By id. Lines of `zipage eval --output`, `bench serve --output` (id, completion) or `run-batch`.
std::unordered_map<std::string, ExpectedAnswer> read_expected(const std::string& path);

}  // namespace zipage::cli
