#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/kernels/attention/decode.h"
#include "cuda/core/device.h"

namespace zipage::test {
namespace {

struct Row {
  int32_t tokens, kv_len;
};

struct AttentionCase {
  DType dtype, kv_dtype;
  int32_t head_dim, num_q_heads, num_kv_heads, block_size;
  std::vector<Row> rows;
};

// A step over pages whose unused entries are NaN.
class Step {
 public:
  Step(Device& device, const AttentionCase& c, uint64_t seed) : device_(device), c_(c) {
    Random random(seed);
    int32_t blocks_needed = 0;
    for (const Row& row : c.rows) {
      num_tokens_ += row.tokens;
      longest_ = std::max(longest_, row.kv_len);
      most_tokens_ = std::max(most_tokens_, row.tokens);
      blocks_needed += (row.kv_len + c.block_size - 1) / c.block_size;
    }
    const int32_t num_blocks = blocks_needed + 3;
    std::vector<int32_t> order(static_cast<size_t>(num_blocks));
    for (int32_t i = 0; i < num_blocks; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), random.engine());
    stride_ = longest_ / c.block_size + 2;
    tables_.assign(c.rows.size() * static_cast<size_t>(stride_), 0);
    const size_t page_count = static_cast<size_t>(num_blocks) *
                              static_cast<size_t>(c.num_kv_heads * c.block_size * c.head_dim);
    k_.assign(page_count, std::nan(""));
    v_.assign(page_count, std::nan(""));
    std::vector<int32_t> row_begin = {0}, kv_lens, row_of_token;
    size_t next = 0;
    std::normal_distribution<double> draw(0, 1);
    for (size_t r = 0; r < c.rows.size(); ++r) {
      const Row& row = c.rows[r];
      for (int32_t b = 0; b < (row.kv_len + c.block_size - 1) / c.block_size; ++b) {
        tables_[r * static_cast<size_t>(stride_) + static_cast<size_t>(b)] = order[next++];
      }
      for (int32_t entry = 0; entry < row.kv_len; ++entry) {
        for (int32_t h = 0; h < c.num_kv_heads; ++h) {
          for (int32_t i = 0; i < c.head_dim; ++i) {
            k_[place(static_cast<int32_t>(r), h, entry) + static_cast<size_t>(i)] =
                draw(random.engine());
            v_[place(static_cast<int32_t>(r), h, entry) + static_cast<size_t>(i)] =
                draw(random.engine());
          }
        }
      }
      for (int32_t t = 0; t < row.tokens; ++t) row_of_token.push_back(static_cast<int32_t>(r));
      row_begin.push_back(row_begin.back() + row.tokens);
      kv_lens.push_back(row.kv_len);
    }
    k_ = rounded(k_, c.kv_dtype);
    v_ = rounded(v_, c.kv_dtype);
    q_ = rounded(random.normal(static_cast<size_t>(num_tokens_ * c.num_q_heads * c.head_dim), 1.5),
                 c.dtype);
    row_begin_ = row_begin;
    k_device_ = device.upload(k_, c.kv_dtype);
    v_device_ = device.upload(v_, c.kv_dtype);
    q_device_ = device.upload(q_, c.dtype);
    out_ = device.poisoned(q_device_.bytes());
    row_begin_device_ = device.upload(row_begin);
    kv_lens_device_ = device.upload(kv_lens);
    row_of_token_device_ = device.upload(row_of_token);
    tables_device_ = device.upload(tables_);
    layer_.k = k_device_.data();
    layer_.v = v_device_.data();
    kv_.dtype = c.kv_dtype;
    kv_.query_dtype = c.dtype;
    kv_.num_layers = 1;
    kv_.num_blocks = num_blocks;
    kv_.block_size = c.block_size;
    kv_.num_kv_heads = c.num_kv_heads;
    kv_.num_q_heads = c.num_q_heads;
    kv_.head_dim = c.head_dim;
    kv_.layers = &layer_;
    batch_.num_tokens = num_tokens_;
    batch_.num_rows = static_cast<int32_t>(c.rows.size());
    batch_.max_row_tokens = most_tokens_;
    batch_.max_kv_len = longest_;
    batch_.row_of_token = row_of_token_device_.as<int32_t>();
    batch_.row_begin = row_begin_device_.as<int32_t>();
    batch_.kv_lens = kv_lens_device_.as<int32_t>();
    batch_.block_tables = tables_device_.as<int32_t>();
    batch_.block_table_stride = stride_;
    Backend::Limits limits{};
    limits.max_tokens = num_tokens_;
    limits.max_rows = batch_.num_rows;
    limits.num_q_heads = c.num_q_heads;
    limits.num_kv_heads = c.num_kv_heads;
    limits.head_dim = c.head_dim;
    limits.block_size = c.block_size;
    workspace_ = device.poisoned(device.backend->attention_workspace_bytes(limits) + 16);
    args_.dtype = c.dtype;
    args_.q = q_device_.data();
    args_.batch = &batch_;
    args_.kv = &kv_;
    args_.scale = static_cast<float>(1 / std::sqrt(c.head_dim));
    args_.out = out_.data();
    args_.workspace = workspace_.data();
  }
  Step(const Step&) = delete;

  const PagedAttentionArgs& args() const { return args_; }
  std::vector<double> result() { return device_.download(out_, c_.dtype, q_.size()); }
  std::vector<std::byte> result_bytes() { return device_.download(out_.data(), out_.bytes()); }

  std::vector<double> reference() const {
    std::vector<double> out(q_.size());
    const int32_t d = c_.head_dim;
    const int32_t group = c_.num_q_heads / c_.num_kv_heads;
    for (size_t r = 0; r < c_.rows.size(); ++r) {
      const Row& row = c_.rows[r];
      for (int32_t j = 0; j < row.tokens; ++j) {
        const int32_t visible = row.kv_len - row.tokens + j + 1;
        for (int32_t h = 0; h < c_.num_q_heads; ++h) {
          const double* q = q_.data() + ((row_begin_[r] + j) * c_.num_q_heads + h) * d;
          std::vector<double> p(static_cast<size_t>(visible));
          double largest = -INFINITY;
          for (int32_t e = 0; e < visible; ++e) {
            const double* k = k_.data() + place(static_cast<int32_t>(r), h / group, e);
            double dot = 0;
            for (int32_t i = 0; i < d; ++i) dot += q[i] * k[i];
            p[static_cast<size_t>(e)] = dot / std::sqrt(d);
            largest = std::max(largest, p[static_cast<size_t>(e)]);
          }
          double sum = 0;
          for (double& x : p) sum += x = std::exp(x - largest);
          double* to = out.data() + ((row_begin_[r] + j) * c_.num_q_heads + h) * d;
          for (int32_t e = 0; e < visible; ++e) {
            const double* v = v_.data() + place(static_cast<int32_t>(r), h / group, e);
            for (int32_t i = 0; i < d; ++i) to[i] += p[static_cast<size_t>(e)] / sum * v[i];
          }
        }
      }
    }
    return out;
  }

 private:
  size_t place(int32_t row, int32_t head, int32_t entry) const {
    const size_t block =
        static_cast<size_t>(tables_[static_cast<size_t>(row * stride_ + entry / c_.block_size)]);
    return ((block * static_cast<size_t>(c_.num_kv_heads) + static_cast<size_t>(head)) *
                static_cast<size_t>(c_.block_size) +
            static_cast<size_t>(entry % c_.block_size)) *
           static_cast<size_t>(c_.head_dim);
  }

  Device& device_;
  AttentionCase c_;
  int32_t num_tokens_ = 0, longest_ = 0, most_tokens_ = 0, stride_ = 0;
  std::vector<int32_t> tables_, row_begin_;
  std::vector<double> q_, k_, v_;
  Buffer q_device_, k_device_, v_device_, out_, row_begin_device_, kv_lens_device_,
      row_of_token_device_, tables_device_, workspace_;
  LayerKvView layer_;
  PagedKvView kv_;
  StepBatch batch_;
  PagedAttentionArgs args_{};
};

std::string name(const AttentionCase& c) {
  return std::string(to_string(c.dtype)) + "/" + to_string(c.kv_dtype) + " d " +
         std::to_string(c.head_dim) + " heads " + std::to_string(c.num_q_heads) + "/" +
         std::to_string(c.num_kv_heads) + " block " + std::to_string(c.block_size) + " rows " +
         std::to_string(c.rows.size()) + " first " + std::to_string(c.rows[0].tokens) + "@" +
         std::to_string(c.rows[0].kv_len);
}

// bf16: weights P are rounded to bf16 too, an error of 2^-9 of a mean of values of size 1 each.
double tolerance(const AttentionCase& c) { return c.dtype == DType::kF32 ? 2e-5 : 8e-3; }

void check(const AttentionCase& c) {
  Device device(c.dtype);
  Step step(device, c, 11);
  const auto want = step.reference();
  device.backend->paged_attention(step.args(), *device.stream);
  expect_near(step.result(), want, tolerance(c), 1, name(c));
}

const std::vector<Row> kDecodeRows = {{1, 1},  {1, 300}, {1, 32}, {1, 33},  {1, 700},
                                      {1, 63}, {1, 256}, {1, 0},  {1, 257}, {1, 5}};
const std::vector<Row> kMixedRows = {{1, 40},   {37, 37}, {1, 300}, {5, 130},
                                     {64, 200}, {2, 2},   {1, 1},   {130, 390}};

TEST(PagedAttention, DecodeBf16) {
  int count = 0;
  for (const int32_t d : {64, 80, 96, 128, 256}) {
    for (const auto& [q_heads, kv_heads] :
         std::vector<std::pair<int, int>>{{2, 2}, {4, 2}, {6, 2}, {8, 2}, {5, 1}, {8, 1}}) {
      for (const int32_t block : {16, 48, 64, 256}) {
        if (block != 256 && q_heads != 8) continue;
        check({DType::kBF16, DType::kBF16, d, q_heads, kv_heads, block, kDecodeRows});
        ++count;
      }
    }
  }
  check(
      {DType::kBF16, DType::kBF16, 128, 8, 2, 256, {{1, 2048}}});  // one long row over many workers
  check({DType::kBF16, DType::kBF16, 128, 32, 2, 64, kDecodeRows});  // a group of 16
  check({DType::kBF16, DType::kBF16, 128, 8, 2, 20, kDecodeRows});   // an odd block size
  check({DType::kBF16, DType::kF16, 128, 8, 2, 64, kDecodeRows});
  check({DType::kBF16, DType::kF32, 64, 8, 2, 64, kDecodeRows});
  RecordProperty("cases", count + 5);
}

TEST(PagedAttention, DecodeVariants) {
  const AttentionCase c{DType::kBF16, DType::kBF16, 128, 8, 2, 256, kDecodeRows};
  Device device(c.dtype);
  for (const auto variant : {DecodeVariant::kDefault, DecodeVariant::kFourWarps,
                             DecodeVariant::kEightWarps, DecodeVariant::kTensorCopy}) {
    Step step(device, c, 12);
    launch_paged_attention_decode(step.args(), device.backend->context(),
                                  cuda_stream(*device.stream).handle(), variant);
    expect_near(step.result(), step.reference(), tolerance(c), 1,
                "variant " + std::to_string(static_cast<int>(variant)));
  }
}

TEST(PagedAttention, ManyRows) {
  AttentionCase c{DType::kBF16, DType::kBF16, 128, 8, 2, 64, {}};
  Random random(3);
  for (int i = 0; i < 300; ++i) c.rows.push_back({1, 1 + random.below(200)});
  check(c);
}

TEST(PagedAttention, MixedBf16) {
  int count = 0;
  for (const int32_t d : {64, 80, 96, 128, 256}) {
    for (const auto& [q_heads, kv_heads] :
         std::vector<std::pair<int, int>>{{2, 2}, {6, 2}, {8, 2}, {5, 1}}) {
      for (const int32_t block : {16, 256}) {
        check({DType::kBF16, DType::kBF16, d, q_heads, kv_heads, block, kMixedRows});
        ++count;
      }
    }
  }
  check({DType::kBF16, DType::kBF16, 128, 32, 2, 64, kMixedRows});
  check({DType::kBF16, DType::kBF16, 128, 4, 1, 20, kMixedRows});
  check({DType::kBF16, DType::kF16, 128, 4, 1, 64, kMixedRows});
  RecordProperty("cases", count + 3);
}

TEST(PagedAttention, F32) {
  for (const int32_t d : {64, 80, 256}) {
    check({DType::kF32, DType::kF32, d, 4, 2, 16, kMixedRows});
    check({DType::kF32, DType::kBF16, d, 6, 2, 64, kDecodeRows});
  }
}

// In f32 a token's result is the same bits whether it comes in a chunk or alone.
TEST(PagedAttention, F32ChunkEqualsSteps) {
  Device device(DType::kF32);
  AttentionCase chunk{DType::kF32, DType::kF32, 64, 4, 2, 32, {{3, 100}}};
  Step together(device, chunk, 5);
  device.backend->paged_attention(together.args(), *device.stream);
  const auto all = together.result_bytes();
  const size_t token_bytes = all.size() / 3;
  AttentionCase single = chunk;
  single.rows = {{1, 100}};
  PagedAttentionArgs args = together.args();
  StepBatch batch = *args.batch;
  batch.num_tokens = 1;
  batch.max_row_tokens = 1;
  const std::vector<int32_t> row_begin = {0, 1};
  Buffer row_begin_device = device.upload(row_begin);
  batch.row_begin = row_begin_device.as<int32_t>();
  args.batch = &batch;
  args.q = static_cast<const std::byte*>(args.q) + 2 * token_bytes;
  Buffer out = device.poisoned(token_bytes);
  args.out = out.data();
  device.backend->paged_attention(args, *device.stream);
  const auto alone = device.download(out.data(), token_bytes);
  EXPECT_EQ(std::memcmp(alone.data(), all.data() + 2 * token_bytes, token_bytes), 0);
}

// A captured step replays with other lengths: nothing of a batch's contents is in the launch.
TEST(Graph, ReplaysDecodeWithOtherLengths) {
  Device device(DType::kBF16);
  AttentionCase c{DType::kBF16, DType::kBF16, 128, 8, 2, 64, {{1, 130}, {1, 500}, {1, 64}}};
  Step step(device, c, 6);
  device.backend->begin_capture(*device.stream);
  device.backend->paged_attention(step.args(), *device.stream);
  const auto graph = device.backend->end_capture(*device.stream);
  const std::vector<int32_t> shorter = {65, 77, 1};
  device.backend->copy(const_cast<int32_t*>(step.args().batch->kv_lens), shorter.data(), 12,
                       *device.stream);
  graph->launch(*device.stream);
  const auto replayed = step.result_bytes();
  device.backend->paged_attention(step.args(), *device.stream);
  const auto eager = step.result_bytes();
  EXPECT_EQ(std::memcmp(replayed.data(), eager.data(), eager.size()), 0);
  for (const double x : step.result()) ASSERT_FALSE(std::isnan(x));
}

TEST(Backend, ReportsTheDevice) {
  Device device(DType::kBF16);
  const DeviceInfo info = device.backend->info();
  EXPECT_EQ(info.kind, "cuda");
  EXPECT_GT(info.total_bytes, info.free_bytes / 2);
  EXPECT_TRUE(device.backend->traits().supports_graphs);
  EXPECT_THROW((void)device.backend->allocate(size_t{1} << 50, MemorySpace::kDevice),
               std::runtime_error);
  auto event = device.backend->create_event();
  event->record(*device.stream);
  event->wait();
  EXPECT_TRUE(event->query());
}

}  // namespace
}  // namespace zipage::test
