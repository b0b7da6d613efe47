#include "model/open_model.h"

#include <cstring>

#include "base/error.h"
#include "base/mmap.h"
#include "model/dummy_weights.h"
#include "model/families/tensor_names.h"
#include "model/gguf_config.h"
#include "weights/gguf.h"

namespace zipage {
namespace {

bool same_content(const HostTensor& a, const HostTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
}

// A config that ties the head to the embedding beside a file that has a head of its own: the file
// is what was trained. transformers 5 keeps the head as well. Equal ones stay tied, which saves the
// memory of one.
void keep_own_head(OpenedModel& model) {
  if (!model.config.tie_word_embeddings || model.weights == nullptr) return;
  const WeightSource& source = *model.weights;
  const std::string head_name = tensor_name(source.naming(), TensorRole::kLmHead);
  const std::string embedding_name = tensor_name(source.naming(), TensorRole::kEmbedding);
  if (!source.contains(head_name) || !source.contains(embedding_name)) return;
  const HostTensor* head = source.find(head_name);
  const HostTensor* embedding = source.find(embedding_name);
  const bool same = same_content(*head, *embedding);
  source.release(*head);
  source.release(*embedding);
  if (same) return;
  model.config.tie_word_embeddings = false;
  model.warnings.push_back(
      fmt::format("{}: the config says tie_word_embeddings, but tensor '{}' of the file differs "
                  "from '{}'; the file's head is used",
                  source.path(), head_name, embedding_name));
}

}  // namespace

OpenedModel open_model(const std::string& path, std::string_view load_format) {
  OpenedModel model;
  if (load_format != "dummy") model.weights = open_weights(path, load_format);
  if (const auto* gguf = dynamic_cast<const GgufSource*>(model.weights.get())) {
    model.config = parse_gguf_config(*gguf);
    model.generation = parse_gguf_generation_config(gguf->file());
    return model;
  }
  if (!is_directory(path)) {
    fail(StatusCode::kNotFound, "'{}' is not a folder with a config.json", path);
  }
  model.config = read_model_config(path);
  model.generation = read_generation_config(path);
  if (load_format == "dummy") {
    model.weights = make_dummy_weights(path, model.config);
  } else {
    keep_own_head(model);
  }
  return model;
}

}  // namespace zipage
