// Where the tensors of a model come from: safetensors files, a GGUF file, or nowhere (dummy
// weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace zipage {

// How the tensors of a source are called, and how q and k rows are ordered.
enum class WeightNaming { kHuggingFace, kGguf };

// Owns the bytes that its tensors point to. They come from files when they are fetched: find() and
// get() do so, a caller that describes many tensors first uses peek() and require(), and fetches
// each before it reads it. Fetching and releasing are for one thread, the loading one; what was
// fetched may be read by any.
// Data is aligned to the element's size (packed types: to 2 bytes, their scales are f16).
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  bool contains(std::string_view name) const { return entry(name) != nullptr; }
  // Null when there is no such tensor. Throws kDataLoss when its file cannot be read any more,
  // kUnimplemented when its element type is one that
  // Zipage cannot use.
  const HostTensor* find(std::string_view name) const;
  // Throws kNotFound, or kDataLoss when the shape is not `expected_shape`: file, tensor, both
  // shapes.
  const HostTensor& get(std::string_view name, const Shape& expected_shape) const;
  // The same, but the bytes are not there to be read yet.
  const HostTensor* peek(std::string_view name) const;
  const HostTensor& require(std::string_view name, const Shape& expected_shape) const;

  // Reads the tensor's bytes from its file. Throws kDataLoss.
  virtual void fetch(const HostTensor&) const {}
  // The tensor's bytes are not needed any more: the system takes back the memory they sit in.
  virtual void release(const HostTensor& tensor) const = 0;

  std::vector<std::string> names() const;  // sorted
  int64_t total_bytes() const { return total_bytes_; }
  const std::string& path() const { return path_; }  // folder or file
  virtual WeightNaming naming() const = 0;

 protected:
  explicit WeightSource(std::string path) : path_(std::move(path)) {}

  struct Entry {
    HostTensor tensor;
    std::string file;              // for messages
    std::string unsupported_type;  // not empty: why find() throws; then tensor.data is null
  };
  // Throws kDataLoss when the name is taken. Moves unaligned data to an aligned copy.
  void add(Entry entry);
  const Entry* entry(std::string_view name) const;
  // Why a tensor that one would expect is not there; part of the message of get().
  void note_absent(const std::string& name, std::string why) {
    absent_.emplace(name, std::move(why));
  }
  size_t num_tensors() const { return entries_.size(); }

 private:
  std::string path_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> absent_;
  std::vector<std::unique_ptr<std::byte[]>> aligned_copies_;
  int64_t total_bytes_ = 0;
};

// `load_format`: auto | safetensors | gguf. auto: a folder holds safetensors files, a file is GGUF.
// Dummy weights are made from a config: see model/dummy_weights.h.
std::unique_ptr<WeightSource> open_weights(const std::string& path,
                                           std::string_view load_format = "auto");

}  // namespace zipage
