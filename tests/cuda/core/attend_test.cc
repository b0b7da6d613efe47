// attend(): a decode step's attention with few rows is one kernel; more rows, other shapes and
// dtypes are the two ops. Both are held to the same oracle.
#include "cuda/core/device.h"
#include "oracle/transformer_oracle.h"

namespace zipage::test {
namespace {

constexpr int32_t kMaxPosition = 64;
constexpr int32_t kWindow = 4;

struct AttendCase {
  int32_t dim, num_q_heads, num_kv_heads, block_size;
  std::vector<int32_t> kv_lens;  // 0: padding
  bool norms;
};

std::string name(const AttendCase& c) {
  std::string text = std::string("d ") + std::to_string(c.dim) + " heads " +
                     std::to_string(c.num_q_heads) + "/" + std::to_string(c.num_kv_heads) +
                     " block " + std::to_string(c.block_size) + (c.norms ? " norms" : "") + " rows";
  for (const int32_t len : c.kv_lens) text.append(1, ' ').append(std::to_string(len));
  return text;
}

// A step's arguments, all arrays in host memory, and a copy of them on the device. The pages hold
// the entries of earlier steps and NaN elsewhere.
class AttendStep {
 public:
  AttendStep(Device& device, const AttendCase& c) : device_(device), c_(c) {
    Random random(static_cast<uint64_t>(c.kv_lens[0] * 31 + c.num_q_heads));
    fill_tables(random);
    fill_pages(random);
    const int64_t heads = c.num_q_heads + 2 * c.num_kv_heads;
    qkv_ = encode(random.normal(rows() * static_cast<size_t>(heads * c.dim)), DType::kBF16);
    q_norm_ = floats(random.normal(static_cast<size_t>(c.dim)));
    k_norm_ = floats(random.normal(static_cast<size_t>(c.dim)));
    for (int32_t p = 0; p < kMaxPosition; ++p) {
      for (int32_t i = 0; i < c.dim; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * (i % (c.dim / 2)) / c.dim);
        rope_.push_back(static_cast<float>(i < c.dim / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    queries_.assign(rows() * kWindow * q_bytes(), std::byte{0xff});
    q_.resize(rows() * q_bytes());
    set_views();
    upload();
  }
  AttendStep(const AttendStep&) = delete;

  void run(bool keep_queries) {
    device_batch_.query_slots = keep_queries ? device_query_slots_.as<int32_t>() : nullptr;
    out_device_ = device_.poisoned(rows() * q_bytes());
    device_attention_.out = out_device_.data();
    device_.backend->attend(device_prepare_, device_attention_, *device_.stream);
    out_ = device_.download(out_device_.data(), rows() * q_bytes());
  }
  const std::vector<std::byte>& out() const { return out_; }

  // What run(true) wrote: the new heads against the formula, then attention over exactly those.
  void check() {
    const std::string what = name(c_);
    const oracle::PreparedHeads want = oracle::attention_prepare(prepare_);
    const auto pages_k = device_.download(device_k_.data(), k_.size());
    const auto pages_v = device_.download(device_v_.data(), v_.size());
    const auto queries = device_.download(device_queries_.data(), queries_.size());
    std::vector<double> got_heads, want_heads;
    const auto take = [&](const std::vector<std::byte>& from, int64_t element, size_t want_at,
                          const std::vector<double>& expected) {
      for (int32_t i = 0; i < c_.dim; ++i) {
        got_heads.push_back(oracle::read_element(from.data(), DType::kBF16, element + i));
        want_heads.push_back(expected[want_at + static_cast<size_t>(i)]);
      }
    };
    for (size_t r = 0; r < rows(); ++r) {
      if (c_.kv_lens[r] == 0) continue;
      for (int32_t h = 0; h < c_.num_q_heads; ++h) {
        const int64_t head = (query_slots_[r] * int64_t{c_.num_q_heads} + h) * c_.dim;
        take(queries, head,
             (r * static_cast<size_t>(c_.num_q_heads) + static_cast<size_t>(h)) *
                 static_cast<size_t>(c_.dim),
             want.q);
        std::memcpy(q_.data() + r * q_bytes() + static_cast<size_t>(h * c_.dim) * 2,
                    queries.data() + head * 2, static_cast<size_t>(c_.dim) * 2);
      }
      for (int32_t h = 0; h < c_.num_kv_heads; ++h) {
        const size_t at = (r * static_cast<size_t>(c_.num_kv_heads) + static_cast<size_t>(h)) *
                          static_cast<size_t>(c_.dim);
        const int64_t entry = entry_of(r, h, c_.kv_lens[r] - 1);
        take(pages_k, entry, at, want.k);
        take(pages_v, entry, at, want.v);
        for (auto* pages : {&k_, &v_}) {
          std::memcpy(pages->data() + entry * 2,
                      (pages == &k_ ? pages_k : pages_v).data() + entry * 2,
                      static_cast<size_t>(c_.dim) * 2);
        }
      }
    }
    // Two roundings, and the rotation can cancel.
    expect_near(got_heads, want_heads, 3 * half_ulp(DType::kBF16), 1.5, what + " heads");
    EXPECT_EQ(pages_k, k_) << what << ": nothing but the new entries is written";
    EXPECT_EQ(pages_v, v_) << what;
    // Weights are rounded to bf16, an error of 2^-9 of a mean of values of size 1 each.
    std::vector<double> out = oracle::paged_attention(attention_).out;
    for (size_t r = 0; r < rows(); ++r) {
      const auto row = out.begin() + static_cast<std::ptrdiff_t>(r * q_bytes() / 2);
      if (c_.kv_lens[r] == 0) std::fill_n(row, q_bytes() / 2, 0.0);
    }
    expect_near(decode(out_, DType::kBF16), out, 8e-3, 1, what + " attention");
  }

 private:
  size_t rows() const { return c_.kv_lens.size(); }
  size_t q_bytes() const { return static_cast<size_t>(c_.num_q_heads * c_.dim) * 2; }
  static std::vector<float> floats(const std::vector<double>& values) {
    return {values.begin(), values.end()};
  }
  int64_t entry_of(size_t row, int32_t head, int32_t entry) const {
    const int64_t block =
        tables_[row * static_cast<size_t>(stride_) + static_cast<size_t>(entry / c_.block_size)];
    return ((block * c_.num_kv_heads + head) * c_.block_size + entry % c_.block_size) * c_.dim;
  }

  void fill_tables(Random& random) {
    const int32_t longest = *std::max_element(c_.kv_lens.begin(), c_.kv_lens.end());
    stride_ = longest / c_.block_size + 2;
    for (const int32_t len : c_.kv_lens) num_blocks_ += (len + c_.block_size - 1) / c_.block_size;
    num_blocks_ += 2;
    std::vector<int32_t> order(static_cast<size_t>(num_blocks_));
    for (int32_t i = 0; i < num_blocks_; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), random.engine());
    tables_.assign(rows() * static_cast<size_t>(stride_), 0);
    row_begin_ = {0};
    size_t next = 0;
    for (size_t r = 0; r < rows(); ++r) {
      const int32_t len = c_.kv_lens[r];
      for (int32_t b = 0; b * c_.block_size < len; ++b)
        tables_[r * static_cast<size_t>(stride_) + static_cast<size_t>(b)] = order[next++];
      const int32_t last = len - 1;
      kv_slots_.push_back(len == 0 ? -1
                                   : tables_[r * static_cast<size_t>(stride_) +
                                             static_cast<size_t>(last / c_.block_size)] *
                                             c_.block_size +
                                         last % c_.block_size);
      query_slots_.push_back(len == 0 ? -1 : static_cast<int32_t>(r) * kWindow + len % kWindow);
      positions_.push_back(random.below(kMaxPosition));
      row_begin_.push_back(static_cast<int32_t>(r) + 1);
    }
  }

  void fill_pages(Random& random) {
    const int64_t elements = int64_t{num_blocks_} * c_.num_kv_heads * c_.block_size * c_.dim;
    for (auto* pages : {&k_, &v_}) {
      pages->assign(static_cast<size_t>(elements) * 2, std::byte{0xff});
      for (size_t r = 0; r < rows(); ++r) {
        for (int32_t h = 0; h < c_.num_kv_heads; ++h) {
          for (int32_t e = 0; e + 1 < c_.kv_lens[r]; ++e) {
            const auto bytes = encode(random.normal(static_cast<size_t>(c_.dim)), DType::kBF16);
            std::memcpy(pages->data() + entry_of(r, h, e) * 2, bytes.data(), bytes.size());
          }
        }
      }
    }
  }

  void set_views() {
    layer_.k = k_.data();
    layer_.v = v_.data();
    layer_.queries = queries_.data();
    kv_.dtype = kv_.query_dtype = DType::kBF16;
    kv_.num_layers = 1;
    kv_.num_blocks = num_blocks_;
    kv_.block_size = c_.block_size;
    kv_.num_kv_heads = c_.num_kv_heads;
    kv_.num_q_heads = c_.num_q_heads;
    kv_.head_dim = c_.dim;
    kv_.num_slots = static_cast<int32_t>(rows());
    kv_.window_size = kWindow;
    kv_.layers = &layer_;
    batch_.num_tokens = batch_.num_rows = static_cast<int32_t>(rows());
    batch_.max_row_tokens = 1;
    batch_.max_kv_len = *std::max_element(c_.kv_lens.begin(), c_.kv_lens.end());
    batch_.positions = positions_.data();
    batch_.kv_slots = kv_slots_.data();
    batch_.query_slots = query_slots_.data();
    batch_.row_of_token = row_begin_.data();
    batch_.row_begin = row_begin_.data();
    batch_.kv_lens = c_.kv_lens.data();
    batch_.block_tables = tables_.data();
    batch_.block_table_stride = stride_;
    prepare_.dtype = attention_.dtype = DType::kBF16;
    prepare_.qkv = qkv_.data();
    prepare_.q_norm = c_.norms ? q_norm_.data() : nullptr;
    prepare_.k_norm = c_.norms ? k_norm_.data() : nullptr;
    prepare_.norm_eps = 1e-6f;
    prepare_.rope_cos_sin = rope_.data();
    prepare_.rotary_dim = c_.dim;
    attention_.q = q_.data();
    attention_.scale = static_cast<float>(1 / std::sqrt(c_.dim));
    prepare_.batch = attention_.batch = &batch_;
    prepare_.kv = attention_.kv = &kv_;
  }

  void upload() {
    Backend::Limits limits{};
    limits.max_tokens = limits.max_rows = batch_.num_rows;
    limits.num_q_heads = c_.num_q_heads;
    limits.num_kv_heads = c_.num_kv_heads;
    limits.head_dim = c_.dim;
    limits.block_size = c_.block_size;
    workspace_ = device_.poisoned(device_.backend->attention_workspace_bytes(limits));
    device_k_ = device_.upload(k_);
    device_v_ = device_.upload(v_);
    device_queries_ = device_.upload(queries_);
    device_qkv_ = device_.upload(qkv_);
    device_q_norm_ = device_.upload(q_norm_);
    device_k_norm_ = device_.upload(k_norm_);
    device_rope_ = device_.upload(rope_);
    device_q_ = device_.poisoned(q_.size());
    out_device_ = device_.poisoned(q_.size());
    const auto ints = [&](const std::vector<int32_t>& values) {
      arrays_.push_back(device_.upload(values));
      return arrays_.back().as<int32_t>();
    };
    device_query_slots_ = device_.upload(query_slots_);
    device_layer_.k = device_k_.data();
    device_layer_.v = device_v_.data();
    device_layer_.queries = device_queries_.data();
    device_kv_ = kv_;
    device_kv_.layers = &device_layer_;
    device_batch_ = batch_;
    device_batch_.positions = ints(positions_);
    device_batch_.kv_slots = ints(kv_slots_);
    device_batch_.row_begin = ints(row_begin_);
    device_batch_.row_of_token = device_batch_.row_begin;
    device_batch_.kv_lens = ints(c_.kv_lens);
    device_batch_.block_tables = ints(tables_);
    device_prepare_ = prepare_;
    device_prepare_.qkv = device_qkv_.data();
    if (c_.norms) {
      device_prepare_.q_norm = device_q_norm_.as<float>();
      device_prepare_.k_norm = device_k_norm_.as<float>();
    }
    device_prepare_.rope_cos_sin = device_rope_.as<float>();
    device_prepare_.q_out = device_q_.data();
    device_attention_ = attention_;
    device_attention_.q = device_q_.data();
    device_attention_.out = out_device_.data();
    device_attention_.workspace = workspace_.data();
    device_prepare_.batch = device_attention_.batch = &device_batch_;
    device_prepare_.kv = device_attention_.kv = &device_kv_;
  }

  Device& device_;
  const AttendCase c_;
  int32_t stride_ = 0, num_blocks_ = 0;
  std::vector<int32_t> tables_, kv_slots_, query_slots_, positions_, row_begin_;
  std::vector<std::byte> k_, v_, queries_, qkv_, q_, out_;
  std::vector<float> q_norm_, k_norm_, rope_;
  LayerKvView layer_, device_layer_;
  PagedKvView kv_, device_kv_;
  StepBatch batch_, device_batch_;
  AttentionPrepareArgs prepare_{}, device_prepare_{};
  PagedAttentionArgs attention_{}, device_attention_{};
  Buffer workspace_, device_k_, device_v_, device_queries_, device_qkv_, device_q_norm_,
      device_k_norm_, device_rope_, device_q_, out_device_, device_query_slots_;
  std::vector<Buffer> arrays_;
};

void check(const AttendCase& c) {
  Device device(DType::kBF16);
  AttendStep step(device, c);
  step.run(true);
  step.check();
  const auto first = step.out();
  step.run(false);  // finds the counters as the first run left them
  EXPECT_EQ(step.out(), first) << name(c);
}

TEST(Attend, OneRow) {
  for (const int32_t len : {1, 2, 15, 16, 17, 31, 33, 128, 129, 257, 1700, 2048, 5000}) {
    check({128, 32, 8, 256, {len}, true});
    check({128, 8, 2, 64, {len}, false});
  }
}

TEST(Attend, Groups) {
  for (const auto& [q_heads, kv_heads] : std::vector<std::pair<int, int>>{
           {1, 1}, {4, 2}, {3, 1}, {20, 4}, {6, 1}, {28, 4}, {16, 2}, {64, 8}, {32, 2}}) {
    check({128, q_heads, kv_heads, 16, {700}, true});
    check({128, q_heads, kv_heads, 48, {47, 300}, false});
  }
}

TEST(Attend, Rows) {
  check({128, 32, 8, 256, {1, 0, 300, 33}, true});
  check({128, 32, 8, 256, {0}, true});
  check({128, 32, 8, 32, {2049, 128, 1, 700}, true});
  check({128, 8, 2, 64, {16, 2000, 17}, false});
  check({128, 64, 64, 16, {40, 41, 500}, true});  // more heads than SMs
  check({128, 32, 8, 256, {16, 2000, 17, 5, 0, 300, 1000, 64}, true});
  check({128, 8, 2, 64, {16, 2000, 17, 5, 0, 300, 1, 2, 3}, true});  // two ops
}

TEST(Attend, OtherShapes) {
  check({64, 14, 2, 64, {1, 300}, false});
  check({256, 4, 1, 64, {300}, true});
  check({128, 8, 2, 20, {133}, true});
}

}  // namespace
}  // namespace zipage::test
