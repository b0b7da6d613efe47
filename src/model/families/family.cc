#include "model/families/family.h"

#include <limits>

#include "base/error.h"
#include "model/config.h"
#include "weights/json.h"

namespace zipage {
namespace {

[[noreturn]] void refuse(const JsonValue& field) {
  fail(StatusCode::kUnimplemented,
       "{}: field '{}' is {}: layers that attend to a sliding window are not supported",
       field.file(), field.field(), field.text());
}

constexpr int64_t kMaxWindow = std::numeric_limits<int64_t>::max();

}  // namespace

std::span<const ModelFamily* const> model_families() {
#define ZIPAGE_FAMILY_POINTER(name) &name##_family(),
  static const ModelFamily* const kFamilies[] = {ZIPAGE_MODEL_FAMILIES(ZIPAGE_FAMILY_POINTER)};
#undef ZIPAGE_FAMILY_POINTER
  return kFamilies;
}

const ModelFamily* find_family(std::string_view architecture) {
  for (const ModelFamily* family : model_families()) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

const ModelFamily* find_gguf_family(std::string_view gguf_architecture) {
  for (const ModelFamily* family : model_families()) {
    if (!gguf_architecture.empty() && family->gguf_architecture == gguf_architecture) return family;
  }
  return nullptr;
}

std::string supported_architectures() {
  std::string text;
  for (const ModelFamily* family : model_families()) {
    text.append(text.empty() ? "" : ", ").append(family->architecture);
  }
  return text;
}

std::string supported_gguf_architectures() {
  std::string text;
  for (const ModelFamily* family : model_families()) {
    if (family->gguf_architecture.empty()) continue;
    text.append(text.empty() ? "" : ", ").append(family->gguf_architecture);
  }
  return text;
}

void refuse_sliding_window(const JsonValue& json, const ModelConfig& config) {
  if (const auto window = json.find("sliding_window")) {
    // A window as long as the context hides nothing.
    if (window->as_int(1, kMaxWindow) < config.max_position_embeddings) refuse(*window);
  }
  if (const auto types = json.find("layer_types")) {
    for (const JsonValue& type : types->elements()) {
      if (type.as_string() != "full_attention") refuse(type);
    }
  }
}

void refuse_qwen_sliding_window(const JsonValue& json, const ModelConfig& config) {
  if (const auto types = json.find("layer_types")) {
    for (const JsonValue& type : types->elements()) {
      if (type.as_string() != "full_attention") refuse(type);
    }
    return;  // the list overrides what follows
  }
  const auto use = json.find("use_sliding_window");
  if (!use || !use->as_bool()) return;
  const auto window = json.find("sliding_window");
  if (!window || window->as_int(1, kMaxWindow) >= config.max_position_embeddings) return;
  const auto first = json.find("max_window_layers");
  if (!first || first->as_int(0, kMaxWindow) < config.num_layers) refuse(*window);
}

}  // namespace zipage
