// A pool of pages with random keys, slots and jobs, in device memory and as doubles for the oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "oracle/compression_oracle.h"

namespace zipage::testing {

struct CaseShape {
  int num_layers = 2;
  int num_kv_heads = 2;
  int group = 2;  // query heads a KV head
  int head_dim = 64;
  int rotary_dim = 64;
  int block_size = 16;
  int window_size = 4;
  int num_slots = 4;
  int score_blocks = 4;  // score capacity
  DType dtype = DType::kF32;
  DType query_dtype = DType::kF32;
};

struct CaseJob {
  int slot = 0;
  int length = 0;
  int keep = 0;
  int history = 0;
  int prompt_length = 0;
  uint64_t seed = 0;
  int extra_offset = 0;  // added to the position of every entry from history on
  std::vector<int> source = {};
  std::vector<int> target = {};
};

class CompressionCase {
 public:
  CompressionCase(Backend& backend,
                  const CaseShape& shape,
                  std::vector<CaseJob> jobs,
                  uint32_t seed);

  // Device side.
  const PagedKvView& view() const { return view_; }
  const CompressionBatch& batch() const { return batch_; }
  Stream& stream() { return *stream_; }
  CompressionOpArgs args() const;
  const float* rope() const { return rope_device_.as<float>(); }
  int capacity() const { return capacity_; }
  int kept_stride() const { return kept_stride_; }
  float* workspace() const { return workspace_.as<float>(); }
  // A new score scratch, filled with NaN and followed by a guard zone.
  float* new_rows();
  int32_t* new_kept();
  // Row of score scratch, `length` floats.
  std::vector<float> row(const float* rows, int job, int layer, int head);
  void set_row(float* rows, int job, int layer, int head, const std::vector<float>& values);
  std::vector<int> kept_row(const int32_t* kept, int job, int layer, int head);
  // True while every guard zone is as it was.
  bool guards_intact();

  // Host side: what the device held at the start.
  const CaseShape& shape() const { return shape_; }
  const std::vector<CaseJob>& jobs() const { return jobs_; }
  int position_offset(int job) const { return position_offsets_[static_cast<size_t>(job)]; }
  oracle::Rows keys(int job, int layer, int head) const;
  oracle::Window window(int job, int layer, int head) const;
  oracle::Row history(int job, int layer, int head) const;  // F: all score_capacity entries
  std::vector<int> positions(int job, int layer, int head) const;
  oracle::Rows rope_rows() const;

  // Pages and slots as bytes, [layer] each.
  struct Image {
    std::vector<std::vector<std::byte>> k, v;
    std::vector<std::vector<float>> scores;
    std::vector<std::vector<int32_t>> positions;
  };
  const Image& before() const { return image_; }
  Image download();
  size_t entry_offset(int block, int head, int offset) const;  // bytes
  size_t entry_bytes() const;
  size_t slot_offset(int slot, int head) const;  // elements of scores, positions

 private:
  template <typename T>
  T* upload(const std::vector<T>& values);
  void make_pages(uint32_t seed);
  void make_slots(uint32_t seed);
  void make_batch();

  Backend& backend_;
  const CaseShape shape_;
  const std::vector<CaseJob> jobs_;
  std::unique_ptr<Stream> stream_;
  int num_blocks_ = 0;
  int capacity_ = 0;
  int kept_stride_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<Buffer> guarded_;
  Buffer rope_device_, workspace_;
  std::vector<float> rope_;
  std::vector<int> position_offsets_;
  Image image_;
  std::vector<std::vector<std::byte>> queries_;
  std::vector<LayerKvView> layers_;
  PagedKvView view_;
  CompressionBatch batch_;
};

// The backends of this machine: "cpu/scalar", "cpu/avx2", "cpu/avx512", "cuda". The number of
// threads is for CPUs.
std::vector<std::string> backends_here();
std::unique_ptr<Backend> make_backend(const std::string& name, int num_threads);

}  // namespace zipage::testing
