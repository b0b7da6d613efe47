// StepBatch: the tokens of one step as the ops read them. Filled by engine/batch_builder; valid for
// one step. Plain data; arrays lie in device memory (host memory on a CPU) unless a comment says
// host.
//
// No op writes these arrays. copy() brings them before the step's first op, so a kernel may
// prefetch them, and what earlier steps left in the KV blocks, while the op before it ends.
#pragma once

#include <cstdint>

namespace zipage {

// A row is one request's run of consecutive tokens in this step: a decode (1 token), several tokens
// to verify, or a chunk of a prompt. Chunked prefill is no special case.
//
// A captured graph runs a fixed number of rows; those beyond the step's own are padding: one token
// each, kv_slots and query_slots -1 (nothing is written), kv_lens 0 (attention gives zeros).
struct StepBatch {
  // T
  int32_t num_tokens = 0;
  // R
  int32_t num_rows = 0;
  // Tokens whose logits are wanted.
  int32_t num_logits = 0;
  // Longest row, in tokens (host knowledge for kernel choice).
  int32_t max_row_tokens = 0;
  // Longest context (host knowledge).
  int32_t max_kv_len = 0;
  // [T]
  const int32_t* token_ids = nullptr;
  // [T] true positions, for RoPE.
  const int32_t* positions = nullptr;
  // [T] block_id * block_size + offset: where K and V go (64-bit arithmetic for byte offsets).
  const int32_t* kv_slots = nullptr;
  // [T] slot * window_size + ring place in the query cache; -1: not kept.
  const int32_t* query_slots = nullptr;
  // [T]
  const int32_t* row_of_token = nullptr;
  // [R + 1] first token of each row.
  const int32_t* row_begin = nullptr;
  // [R] KV entries of the row once this step's tokens are written; token j of row r sees entries <
  // kv_lens[r] - row_tokens + j + 1.
  const int32_t* kv_lens = nullptr;
  // [R, block_table_stride]
  const int32_t* block_tables = nullptr;
  int32_t block_table_stride = 0;
  // [num_logits] index of the token.
  const int32_t* logits_tokens = nullptr;
};

}  // namespace zipage
