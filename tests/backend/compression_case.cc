#include "backend/compression_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "backend/registry/registry.h"
#include "base/error.h"

namespace zipage::testing {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr std::byte kGuard{0xa5};

void store(DType dtype, double value, std::byte* at) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF32) {
    std::memcpy(at, &single, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(single) : f32_to_f16(single);
  std::memcpy(at, &bits, 2);
}

double load(DType dtype, const std::byte* at) {
  float single;
  if (dtype == DType::kF32) {
    std::memcpy(&single, at, 4);
    return single;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

size_t bytes_of(DType dtype) { return static_cast<size_t>(dtype_bytes(dtype, 1)); }

}  // namespace

template <typename T>
T* CompressionCase::upload(const std::vector<T>& values) {
  const size_t bytes = std::max<size_t>(values.size() * sizeof(T), 1);
  Buffer buffer = backend_.allocate(bytes, MemorySpace::kDevice);
  backend_.copy(buffer.data(), values.data(), values.size() * sizeof(T), *stream_);
  backend_.synchronize(*stream_);
  buffers_.push_back(std::move(buffer));
  return buffers_.back().template as<T>();
}

CompressionCase::CompressionCase(Backend& backend,
                                 const CaseShape& shape,
                                 std::vector<CaseJob> jobs,
                                 uint32_t seed)
    : backend_(backend),
      shape_(shape),
      jobs_(std::move(jobs)),
      stream_(backend.create_stream(false)) {
  for (const CaseJob& job : jobs_) {
    capacity_ = std::max(capacity_, job.length + 3);  // odd on purpose
    kept_stride_ = std::max(kept_stride_, job.keep + 1);
    for (const auto* table : {&job.source, &job.target}) {
      for (const int block : *table) num_blocks_ = std::max(num_blocks_, block + 2);
    }
  }
  make_pages(seed);
  make_slots(seed + 1);
  make_batch();
  Backend::Limits limits{};
  limits.num_q_heads = shape.num_kv_heads * shape.group;
  limits.num_kv_heads = shape.num_kv_heads;
  limits.head_dim = shape.head_dim;
  limits.block_size = shape.block_size;
  limits.window_size = shape.window_size;
  limits.max_jobs = static_cast<int32_t>(jobs_.size());
  limits.layer_stride = shape.num_layers;
  limits.score_capacity = capacity_;
  limits.max_kv_len = capacity_;
  const size_t bytes = backend.compression_workspace_bytes(limits, CompressionOptions());
  workspace_ = backend.allocate(bytes + kGuardBytes, MemorySpace::kDevice);
  // The guard lies right behind what was asked for.
  const std::vector<std::byte> guard(kGuardBytes, kGuard);
  backend.copy(workspace_.data() + bytes, guard.data(), kGuardBytes, *stream_);
}

// Keys in clusters, so that some are similar and some are not; values at random.
void CompressionCase::make_pages(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const size_t d = static_cast<size_t>(shape_.head_dim);
  const size_t entries = static_cast<size_t>(num_blocks_ * shape_.num_kv_heads) *
                         static_cast<size_t>(shape_.block_size);
  oracle::Rows centers(5, oracle::Row(d));
  for (auto& center : centers) {
    for (double& x : center) x = normal(random);
  }
  layers_.resize(static_cast<size_t>(shape_.num_layers));
  for (auto& layer : layers_) {
    std::vector<std::byte> k(entries * d * bytes_of(shape_.dtype));
    std::vector<std::byte> v(k.size());
    for (size_t e = 0; e < entries; ++e) {
      const auto& center = centers[random() % centers.size()];
      const double spread = random() % 3 == 0 ? 0.2 : 1.0;
      for (size_t j = 0; j < d; ++j) {
        const size_t at = (e * d + j) * bytes_of(shape_.dtype);
        store(shape_.dtype, center[j] + spread * normal(random), &k[at]);
        store(shape_.dtype, normal(random), &v[at]);
      }
    }
    layer.k = upload(k);
    layer.v = upload(v);
    image_.k.push_back(std::move(k));
    image_.v.push_back(std::move(v));
  }
}

void CompressionCase::make_slots(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const size_t row = static_cast<size_t>(shape_.score_blocks * shape_.block_size);
  const size_t rows = static_cast<size_t>(shape_.num_slots * shape_.num_kv_heads);
  const size_t queries = static_cast<size_t>(shape_.num_slots * shape_.window_size) *
                         static_cast<size_t>(shape_.num_kv_heads * shape_.group * shape_.head_dim);
  for (auto& layer : layers_) {
    std::vector<std::byte> q(queries * bytes_of(shape_.query_dtype));
    for (size_t i = 0; i < queries; ++i) {
      store(shape_.query_dtype, normal(random), &q[i * bytes_of(shape_.query_dtype)]);
    }
    std::vector<float> scores(rows * row);
    for (float& f : scores) f = std::exp2(-static_cast<float>(random() % 4000) / 200);
    std::vector<int32_t> positions(rows * row);
    for (size_t r = 0; r < rows; ++r) {
      int position = 0;
      for (size_t i = 0; i < row; ++i) {
        positions[r * row + i] = position;
        position += 1 + static_cast<int>(random() % 3);
      }
    }
    layer.queries = upload(q);
    layer.scores = upload(scores);
    layer.positions = upload(positions);
    queries_.push_back(std::move(q));
    image_.scores.push_back(std::move(scores));
    image_.positions.push_back(std::move(positions));
  }
  view_ = {.dtype = shape_.dtype,
           .query_dtype = shape_.query_dtype,
           .num_layers = shape_.num_layers,
           .num_blocks = num_blocks_,
           .block_size = shape_.block_size,
           .num_kv_heads = shape_.num_kv_heads,
           .num_q_heads = shape_.num_kv_heads * shape_.group,
           .head_dim = shape_.head_dim,
           .num_slots = shape_.num_slots,
           .window_size = shape_.window_size,
           .score_capacity = static_cast<int32_t>(row),
           .layers = layers_.data()};
}

void CompressionCase::make_batch() {
  std::vector<int32_t> slots, lengths, keeps, histories, offsets, prompts, sources, targets;
  std::vector<uint64_t> seeds;
  size_t stride = 1;
  int last_position = 0;
  for (const CaseJob& job : jobs_) {
    stride = std::max({stride, job.source.size(), job.target.size()});
    batch_.max_length = std::max(batch_.max_length, job.length);
    batch_.max_keep = std::max(batch_.max_keep, job.keep);
    slots.push_back(job.slot);
    lengths.push_back(job.length);
    keeps.push_back(job.keep);
    histories.push_back(job.history);
    // Stored positions grow by 3 at most.
    offsets.push_back((job.history > 0 ? 3 * job.history : 0) + job.extra_offset);
    prompts.push_back(job.prompt_length);
    seeds.push_back(job.seed);
    last_position = std::max(last_position, job.length + offsets.back());
  }
  for (const CaseJob& job : jobs_) {
    for (size_t i = 0; i < stride; ++i) {
      sources.push_back(i < job.source.size() ? job.source[i] : -1);
      targets.push_back(i < job.target.size() ? job.target[i] : -1);
    }
  }
  position_offsets_.assign(offsets.begin(), offsets.end());
  batch_.num_jobs = static_cast<int32_t>(jobs_.size());
  batch_.slots = upload(slots);
  batch_.lengths = upload(lengths);
  batch_.keeps = upload(keeps);
  batch_.histories = upload(histories);
  batch_.position_offsets = upload(offsets);
  batch_.prompt_lengths = upload(prompts);
  batch_.seeds = upload(seeds);
  batch_.block_tables = upload(sources);
  batch_.target_tables = upload(targets);
  batch_.block_table_stride = static_cast<int32_t>(stride);

  const int half = shape_.rotary_dim / 2;
  const int num_positions = last_position + 1;
  for (int p = 0; p < num_positions; ++p) {
    for (int part = 0; part < 2; ++part) {
      for (int j = 0; j < half; ++j) {
        const double angle = p * std::pow(10000.0, -static_cast<double>(j) / half);
        rope_.push_back(static_cast<float>(part == 0 ? std::cos(angle) : std::sin(angle)));
      }
    }
  }
  rope_device_ = backend_.allocate(rope_.size() * sizeof(float), MemorySpace::kDevice);
  backend_.copy(rope_device_.data(), rope_.data(), rope_.size() * sizeof(float), *stream_);
  backend_.synchronize(*stream_);
}

CompressionOpArgs CompressionCase::args() const {
  return {&batch_, &view_, 0, shape_.num_layers, capacity_};
}

float* CompressionCase::new_rows() {
  const size_t count = jobs_.size() * static_cast<size_t>(shape_.num_layers * shape_.num_kv_heads) *
                       static_cast<size_t>(capacity_);
  std::vector<std::byte> host(count * sizeof(float) + kGuardBytes, kGuard);
  std::fill_n(reinterpret_cast<float*>(host.data()), count, std::nanf(""));
  guarded_.push_back(backend_.allocate(host.size(), MemorySpace::kDevice));
  backend_.copy(guarded_.back().data(), host.data(), host.size(), *stream_);
  backend_.synchronize(*stream_);
  return guarded_.back().as<float>();
}

int32_t* CompressionCase::new_kept() {
  const size_t count = jobs_.size() * static_cast<size_t>(shape_.num_layers * shape_.num_kv_heads) *
                       static_cast<size_t>(kept_stride_);
  const std::vector<std::byte> host(count * sizeof(int32_t) + kGuardBytes, kGuard);
  guarded_.push_back(backend_.allocate(host.size(), MemorySpace::kDevice));
  backend_.copy(guarded_.back().data(), host.data(), host.size(), *stream_);
  backend_.synchronize(*stream_);
  return guarded_.back().as<int32_t>();
}

std::vector<float> CompressionCase::row(const float* rows, int job, int layer, int head) {
  std::vector<float> out(static_cast<size_t>(jobs_[static_cast<size_t>(job)].length));
  const size_t index = (static_cast<size_t>(job) * static_cast<size_t>(shape_.num_layers) +
                        static_cast<size_t>(layer)) *
                           static_cast<size_t>(shape_.num_kv_heads) +
                       static_cast<size_t>(head);
  backend_.copy(out.data(), rows + index * static_cast<size_t>(capacity_),
                out.size() * sizeof(float), *stream_);
  backend_.synchronize(*stream_);
  return out;
}

void CompressionCase::set_row(
    float* rows, int job, int layer, int head, const std::vector<float>& values) {
  const size_t index = (static_cast<size_t>(job) * static_cast<size_t>(shape_.num_layers) +
                        static_cast<size_t>(layer)) *
                           static_cast<size_t>(shape_.num_kv_heads) +
                       static_cast<size_t>(head);
  backend_.copy(rows + index * static_cast<size_t>(capacity_), values.data(),
                values.size() * sizeof(float), *stream_);
  backend_.synchronize(*stream_);
}

std::vector<int> CompressionCase::kept_row(const int32_t* kept, int job, int layer, int head) {
  std::vector<int32_t> out(static_cast<size_t>(jobs_[static_cast<size_t>(job)].keep));
  const size_t index = (static_cast<size_t>(job) * static_cast<size_t>(shape_.num_layers) +
                        static_cast<size_t>(layer)) *
                           static_cast<size_t>(shape_.num_kv_heads) +
                       static_cast<size_t>(head);
  backend_.copy(out.data(), kept + index * static_cast<size_t>(kept_stride_),
                out.size() * sizeof(int32_t), *stream_);
  backend_.synchronize(*stream_);
  return {out.begin(), out.end()};
}

bool CompressionCase::guards_intact() {
  bool intact = true;
  std::vector<std::byte> guard(kGuardBytes);
  const auto check = [&](const Buffer& buffer) {
    backend_.copy(guard.data(), buffer.data() + buffer.bytes() - kGuardBytes, kGuardBytes,
                  *stream_);
    backend_.synchronize(*stream_);
    intact &= std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kGuard; });
  };
  check(workspace_);
  for (const Buffer& buffer : guarded_) check(buffer);
  return intact;
}

size_t CompressionCase::entry_bytes() const {
  return static_cast<size_t>(shape_.head_dim) * bytes_of(shape_.dtype);
}

size_t CompressionCase::entry_offset(int block, int head, int offset) const {
  const int entry = (block * shape_.num_kv_heads + head) * shape_.block_size + offset;
  return static_cast<size_t>(entry) * entry_bytes();
}

size_t CompressionCase::slot_offset(int slot, int head) const {
  return static_cast<size_t>(slot * shape_.num_kv_heads + head) *
         static_cast<size_t>(view_.score_capacity);
}

oracle::Rows CompressionCase::keys(int job, int layer, int head) const {
  const CaseJob& j = jobs_[static_cast<size_t>(job)];
  oracle::Rows out;
  for (int i = 0; i < j.length; ++i) {
    const int block = j.source[static_cast<size_t>(i / shape_.block_size)];
    const std::byte* at = image_.k[static_cast<size_t>(layer)].data() +
                          entry_offset(block, head, i % shape_.block_size);
    oracle::Row row;
    for (int c = 0; c < shape_.head_dim; ++c) {
      row.push_back(load(shape_.dtype, at + static_cast<size_t>(c) * bytes_of(shape_.dtype)));
    }
    out.push_back(std::move(row));
  }
  return out;
}

oracle::Window CompressionCase::window(int job, int layer, int head) const {
  const CaseJob& j = jobs_[static_cast<size_t>(job)];
  const int w = std::min(shape_.window_size, j.length);
  const int heads = shape_.num_kv_heads * shape_.group;
  oracle::Window out;
  for (int u = 0; u < w; ++u) {
    const int place = (j.length - w + u) % shape_.window_size;
    oracle::Rows group;
    for (int g = 0; g < shape_.group; ++g) {
      oracle::Row row;
      const int first = ((j.slot * shape_.window_size + place) * heads + head * shape_.group + g) *
                        shape_.head_dim;
      for (int c = 0; c < shape_.head_dim; ++c) {
        row.push_back(load(shape_.query_dtype,
                           queries_[static_cast<size_t>(layer)].data() +
                               static_cast<size_t>(first + c) * bytes_of(shape_.query_dtype)));
      }
      group.push_back(std::move(row));
    }
    out.push_back(std::move(group));
  }
  return out;
}

oracle::Row CompressionCase::history(int job, int layer, int head) const {
  const auto& scores = image_.scores[static_cast<size_t>(layer)];
  const size_t begin = slot_offset(jobs_[static_cast<size_t>(job)].slot, head);
  return {scores.begin() + static_cast<std::ptrdiff_t>(begin),
          scores.begin() + static_cast<std::ptrdiff_t>(begin) + view_.score_capacity};
}

std::vector<int> CompressionCase::positions(int job, int layer, int head) const {
  const CaseJob& j = jobs_[static_cast<size_t>(job)];
  std::vector<int> out;
  for (int i = 0; i < j.length; ++i) {
    const size_t at = slot_offset(j.slot, head) + static_cast<size_t>(i);
    out.push_back(i < j.history ? image_.positions[static_cast<size_t>(layer)][at]
                                : i + position_offset(job));
  }
  return out;
}

oracle::Rows CompressionCase::rope_rows() const {
  oracle::Rows out;
  for (size_t i = 0; i < rope_.size(); i += static_cast<size_t>(shape_.rotary_dim)) {
    out.emplace_back(rope_.begin() + static_cast<std::ptrdiff_t>(i),
                     rope_.begin() + static_cast<std::ptrdiff_t>(i) + shape_.rotary_dim);
  }
  return out;
}

CompressionCase::Image CompressionCase::download() {
  Image out = image_;
  const auto get = [&](auto& values, const void* from) {
    backend_.copy(values.data(), from, values.size() * sizeof(values[0]), *stream_);
  };
  for (size_t l = 0; l < layers_.size(); ++l) {
    get(out.k[l], layers_[l].k);
    get(out.v[l], layers_[l].v);
    get(out.scores[l], layers_[l].scores);
    get(out.positions[l], layers_[l].positions);
  }
  backend_.synchronize(*stream_);
  return out;
}

std::vector<std::string> backends_here() {
  std::vector<std::string> names;
  for (const char* name : {"cpu/scalar", "cpu/avx2", "cpu/avx512", "cuda"}) {
    try {
      make_backend(name, 1);
      names.emplace_back(name);
    } catch (const Error&) {  // not on this machine
    }
  }
  return names;
}

std::unique_ptr<Backend> make_backend(const std::string& name, int num_threads) {
  BackendOptions options;
  options.num_threads = num_threads;
  if (name.starts_with("cpu/")) options.isa = name.substr(4);
  return create_backend(name.substr(0, name.find('/')), options);
}

}  // namespace zipage::testing
