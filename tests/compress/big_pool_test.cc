// A pool of more than 8,192 blocks, whose offsets pass 2^31 elements and 2^32 bytes: what lies at
// its end is read and written as in a pool of four blocks (method.md 7, numerics).
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <sys/mman.h>

#include "backend/compression_case.h"
#include "compress/compressor.h"

namespace zipage::testing {
namespace {

constexpr int kHeads = 8, kDim = 128, kBlock = 256, kWindow = 16, kMaxBlocks = 2;
constexpr int kManyBlocks = 9200;
constexpr size_t kPage = size_t{kHeads} * kBlock * kDim * sizeof(uint16_t);
// Element 2^31 is in block 8,192.
static_assert(size_t{8192} * kPage / sizeof(uint16_t) == size_t{1} << 31);

// Memory that is there when it is touched.
class Sparse {
 public:
  explicit Sparse(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr,
                   bytes,
                   PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1,
                   0)) {}
  ~Sparse() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  std::byte* data() const { return data_ == MAP_FAILED ? nullptr : static_cast<std::byte*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

struct Pool {
  explicit Pool(int count, const std::vector<int>& ids)
      : blocks(ids), k(static_cast<size_t>(count) * kPage), v(static_cast<size_t>(count) * kPage) {
    if (k.data() == nullptr || v.data() == nullptr) return;
    queries.resize(size_t{kWindow} * kHeads * kDim);
    scores.assign(size_t{kHeads} * kMaxBlocks * kBlock, 0);
    positions.assign(scores.size(), 0);
    layer.k = k.data();
    layer.v = v.data();
    layer.queries = reinterpret_cast<std::byte*>(queries.data());
    layer.scores = scores.data();
    layer.positions = positions.data();
    view = {.dtype = DType::kBF16,
            .query_dtype = DType::kF32,
            .num_layers = 1,
            .num_blocks = count,
            .block_size = kBlock,
            .num_kv_heads = kHeads,
            .num_q_heads = kHeads,
            .head_dim = kDim,
            .num_slots = 1,
            .window_size = kWindow,
            .score_capacity = kMaxBlocks * kBlock,
            .layers = &layer};
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (float& x : queries) x = normal(random);
    for (const int block : {blocks[0], blocks[1]}) {
      for (std::byte* pages : {layer.k, layer.v}) {
        auto* to = reinterpret_cast<uint16_t*>(pages + static_cast<size_t>(block) * kPage);
        for (size_t i = 0; i < kPage / sizeof(uint16_t); ++i) to[i] = f32_to_bf16(normal(random));
      }
    }
  }
  std::vector<std::byte> page(const std::byte* pages, int block) const {
    const std::byte* from = pages + static_cast<size_t>(block) * kPage;
    return {from, from + kPage};
  }

  const std::vector<int> blocks;  // two that hold a sequence, one to compress into, a free one
  Sparse k, v;
  std::vector<float> queries, scores;
  std::vector<int32_t> positions;
  LayerKvView layer;
  PagedKvView view;
};

std::vector<float> rope_table() {
  std::vector<float> table;
  for (int p = 0; p < 1024; ++p) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kDim / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / kDim);
        table.push_back(static_cast<float>(half == 0 ? std::cos(angle) : std::sin(angle)));
      }
    }
  }
  return table;
}

// One more token in the second block, attention over both, an update of F, a compression into the
// third block, and a token into the fourth.
std::vector<float> use(Backend& backend, Pool& pool, KvPolicy policy) {
  const auto stream = backend.create_stream(false);
  const std::vector<float> rope = rope_table();
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> qkv(size_t{3} * kHeads * kDim), q(size_t{kHeads} * kDim), out(q.size());
  const Backend::Limits limits{.max_tokens = 1,
                               .max_rows = 1,
                               .max_kv_len = 4 * kBlock,
                               .num_q_heads = kHeads,
                               .num_kv_heads = kHeads,
                               .head_dim = kDim,
                               .block_size = kBlock,
                               .window_size = kWindow,
                               .vocab = 16,
                               .max_jobs = 1,
                               .layer_stride = 1,
                               .score_capacity = kMaxBlocks * kBlock};
  std::vector<std::byte> workspace(backend.attention_workspace_bytes(limits) + 64);
  std::vector<float> result;
  const auto token = [&](int32_t index, std::vector<int32_t> table) {
    for (float& x : qkv) x = normal(random);
    const int32_t position = index, row = 0, length = index + 1, begin[] = {0, 1};
    const int32_t kv_slot = table[static_cast<size_t>(index / kBlock)] * kBlock + index % kBlock;
    const int32_t query_slot = index % kWindow;
    StepBatch batch{.num_tokens = 1, .num_rows = 1, .max_row_tokens = 1, .max_kv_len = length};
    batch.positions = &position;
    batch.kv_slots = &kv_slot;
    batch.query_slots = &query_slot;
    batch.row_of_token = &row;
    batch.row_begin = begin;
    batch.kv_lens = &length;
    batch.block_tables = table.data();
    batch.block_table_stride = static_cast<int32_t>(table.size());
    backend.attention_prepare({.dtype = DType::kF32,
                               .qkv = qkv.data(),
                               .q_norm = nullptr,
                               .k_norm = nullptr,
                               .norm_eps = 1e-6f,
                               .rope_cos_sin = rope.data(),
                               .rotary_dim = kDim,
                               .batch = &batch,
                               .kv = &pool.view,
                               .layer = 0,
                               .q_out = q.data()},
                              *stream);
    backend.paged_attention(
        {DType::kF32, q.data(), &batch, &pool.view, 0, 0.1f, out.data(), workspace.data()},
        *stream);
    result.insert(result.end(), out.begin(), out.end());
  };
  token(2 * kBlock - 1, {pool.blocks[0], pool.blocks[1]});

  CompressionOptions options;
  options.kv_policy = policy;
  options.kv_budget = kBlock;
  options.window_size = kWindow;
  options.protect_newest = kWindow;
  const CompressionModel model{1, kHeads, kHeads, kDim, kDim, 0.1f, rope.data()};
  CompressorLimits compressor_limits;
  compressor_limits.block_size = kBlock;
  compressor_limits.max_blocks_per_seq = kMaxBlocks;
  compressor_limits.max_model_len = 1024;
  compressor_limits.max_launch_jobs = compressor_limits.max_batch_jobs = 1;
  Compressor compressor(backend, pool.view, model, options, compressor_limits);
  const std::vector<BlockId> table = {BlockId(pool.blocks[0]), BlockId(pool.blocks[1])};
  const PeakUpdate update = {SlotId(0), 2 * kBlock, 0, table};
  compressor.update_peaks({&update, 1}, *stream);
  CompressJob job;
  job.slot = SlotId(0);
  job.policy = policy;
  job.length = 2 * kBlock;
  job.keep = kBlock;
  job.prompt_length = 5;
  job.max_blocks = kMaxBlocks;
  job.source = table;
  job.target = {BlockId(pool.blocks[2])};
  for (const PlannedBatch& batch : compressor.plan({job}, *stream)) compressor.run(batch, *stream);
  token(kBlock, {pool.blocks[2], pool.blocks[3]});
  return result;
}

class BigPoolTest : public ::testing::TestWithParam<std::tuple<std::string, KvPolicy>> {};

TEST_P(BigPoolTest, TheLastBlocksAreLikeTheFirst) {
  const auto& [name, policy] = GetParam();
  if (name == "cuda") GTEST_SKIP() << "host memory";
  const auto backend = make_backend(name, 1);
  Pool small(4, {0, 1, 2, 3});
  Pool big(kManyBlocks, {8192, kManyBlocks - 1, 8200, 9000});
  if (big.view.layers == nullptr) GTEST_SKIP() << "no address space";
  const auto want = use(*backend, small, policy);
  const auto got = use(*backend, big, policy);
  EXPECT_EQ(got, want);
  EXPECT_EQ(big.scores, small.scores);
  EXPECT_EQ(big.positions, small.positions);
  EXPECT_NE(big.positions[1], big.positions[0]);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(big.page(big.layer.k, big.blocks[i]) == small.page(small.layer.k, small.blocks[i]));
    EXPECT_TRUE(big.page(big.layer.v, big.blocks[i]) == small.page(small.layer.v, small.blocks[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         BigPoolTest,
                         ::testing::Combine(::testing::ValuesIn(backends_here()),
                                            ::testing::Values(KvPolicy::kPeak, KvPolicy::kPaper)),
                         [](const auto& tested) {
                           std::string text = std::get<0>(tested.param) + "_" +
                                              to_string(std::get<1>(tested.param));
                           std::replace(text.begin(), text.end(), '/', '_');
                           return text;
                         });

}  // namespace
}  // namespace zipage::testing
