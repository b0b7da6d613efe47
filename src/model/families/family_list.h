// The model families, one row each. row(llama) stands for llama_family(), which families/llama.cc
// defines; from the rows come its declaration (family.h) and model_families().
// docs/howto/add-a-model-family.md shows how to add one.
#pragma once

// clang-format off
#define ZIPAGE_MODEL_FAMILIES(row) \
  row(llama)                       \
  row(mistral)                     \
  row(qwen2)                       \
  row(qwen3)
// clang-format on
