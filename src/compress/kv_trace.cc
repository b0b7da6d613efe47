#include "compress/kv_trace.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/error.h"
#include "tensor/dtype.h"

namespace zipage {
namespace {

constexpr char kMagic[] = "ZPKVTR1\n";
constexpr size_t kMagicBytes = 8;
constexpr size_t kPrefixBytes = 4;
constexpr uint32_t kMostPayload = 1u << 30;
constexpr uint64_t kMostInt = 0x7fffffff;

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

}  // namespace

KvTraceWriter::KvTraceWriter(const std::string& path)
    : path_(path), file_(path, std::ios::binary | std::ios::trunc) {
  if (!file_) {
    fail(StatusCode::kUnavailable, "{}: the KV trace cannot be opened for writing: {}", path,
         std::strerror(errno));
  }
  put(std::string(kMagic, kMagicBytes));
}

// Each record reaches the system at once: a process that is killed leaves whole ones behind.
void KvTraceWriter::put(const std::string& bytes) {
  errno = 0;
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file_.flush();
  if (file_) {
    whole_bytes_ += bytes.size();
    return;
  }
  const int reason = errno;
  file_.close();
  std::error_code ignored;
  std::filesystem::resize_file(path_, whole_bytes_, ignored);
  fail(StatusCode::kResourceExhausted, "{}: the KV trace cannot be written: {}", path_,
       reason != 0 ? std::strerror(reason) : "the stream failed");
}

void KvTraceWriter::write(const KvTraceRecord& r) {
  const size_t entries = static_cast<size_t>(r.num_heads) * static_cast<size_t>(r.keep);
  ZIPAGE_CHECK_GT(entries, size_t{0});
  ZIPAGE_CHECK_EQ(r.positions.size(), entries);
  ZIPAGE_CHECK_EQ(r.scores.size(), entries);
  bytes_.assign(kPrefixBytes, '\0');
  put_varint(bytes_, r.request_id);
  put_varint(bytes_, static_cast<uint64_t>(r.index));
  put_varint(bytes_, r.external_id.size());
  bytes_ += r.external_id;
  for (const uint64_t number :
       {r.sequence, r.job_id, static_cast<uint64_t>(r.policy), static_cast<uint64_t>(r.layer),
        static_cast<uint64_t>(r.num_heads), static_cast<uint64_t>(r.length),
        static_cast<uint64_t>(r.keep), static_cast<uint64_t>(r.history),
        static_cast<uint64_t>(r.prompt_length), static_cast<uint64_t>(r.tokens)}) {
    put_varint(bytes_, number);
  }
  size_t i = 0;
  for (int32_t head = 0; head < r.num_heads; ++head) {
    int32_t last = -1;
    const size_t begin = i;
    for (; i < begin + static_cast<size_t>(r.keep); ++i) {
      ZIPAGE_CHECK_GT(r.positions[i], last);
      put_varint(bytes_, static_cast<uint64_t>(r.positions[i] - last));
      last = r.positions[i];
    }
    for (size_t j = begin; j < i; ++j) {
      const uint16_t bits = f32_to_bf16(r.scores[j]);
      bytes_.push_back(static_cast<char>(bits & 0xff));
      bytes_.push_back(static_cast<char>(bits >> 8));
    }
  }
  const auto size = static_cast<uint32_t>(bytes_.size() - kPrefixBytes);
  for (size_t byte = 0; byte < kPrefixBytes; ++byte)
    bytes_[byte] = static_cast<char>(size >> (8 * byte));
  put(bytes_);
}

KvTraceReader::KvTraceReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
  if (!file_) fail(StatusCode::kNotFound, "{}: the KV trace cannot be opened", path_);
  char magic[kMagicBytes];
  file_.read(magic, kMagicBytes);
  if (file_.gcount() != kMagicBytes || std::memcmp(magic, kMagic, kMagicBytes) != 0) {
    bad("no KV trace: it does not begin with ZPKVTR1");
  }
  offset_ = kMagicBytes;
}

void KvTraceReader::bad(const char* what) const {
  fail(StatusCode::kDataLoss, "{}: byte {}: {}", path_, offset_, what);
}

uint64_t KvTraceReader::varint(uint64_t most) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ >= payload_.size()) bad("a number runs past its record");
    const auto byte = static_cast<unsigned char>(payload_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) != 0) continue;
    if (value > most) bad("a number is too large for its field");
    return value;
  }
  bad("a number is longer than 64 bits");
}

bool KvTraceReader::next(KvTraceRecord& r) {
  unsigned char prefix[kPrefixBytes];
  file_.read(reinterpret_cast<char*>(prefix), sizeof prefix);
  if (file_.gcount() == 0) return false;
  if (file_.gcount() != sizeof prefix) bad("the file ends inside a record");
  const uint32_t size = prefix[0] | static_cast<uint32_t>(prefix[1]) << 8 |
                        static_cast<uint32_t>(prefix[2]) << 16 |
                        static_cast<uint32_t>(prefix[3]) << 24;
  if (size > kMostPayload) bad("the record's size is out of range");
  // In pieces, so that a lying size does not allocate more than the file holds.
  payload_.clear();
  while (payload_.size() < size) {
    char piece[65536];
    const auto wanted = std::min<size_t>(sizeof piece, size - payload_.size());
    file_.read(piece, static_cast<std::streamsize>(wanted));
    payload_.append(piece, static_cast<size_t>(file_.gcount()));
    if (static_cast<size_t>(file_.gcount()) != wanted) bad("the file ends inside a record");
  }
  at_ = 0;
  r.request_id = varint(~uint64_t{0});
  r.index = static_cast<int32_t>(varint(kMostInt));
  const uint64_t id_bytes = varint(kMostInt);
  if (id_bytes > payload_.size() - at_) bad("a request's id runs past its record");
  r.external_id.assign(payload_, at_, id_bytes);
  at_ += id_bytes;
  r.sequence = varint(~uint64_t{0});
  r.job_id = varint(~uint64_t{0});
  r.policy = static_cast<KvPolicy>(varint(kNumKvPolicies - 1));
  for (int32_t* field :
       {&r.layer, &r.num_heads, &r.length, &r.keep, &r.history, &r.prompt_length, &r.tokens}) {
    *field = static_cast<int32_t>(varint(kMostInt));
  }
  // Heads without entries would cost time and no bytes.
  if (r.num_heads < 1 || r.keep < 1) bad("a compression that keeps nothing");
  const uint64_t entries = static_cast<uint64_t>(r.num_heads) * static_cast<uint64_t>(r.keep);
  if (entries > payload_.size() / 3) bad("fewer entries than the record announces");
  r.positions.resize(entries);
  r.scores.resize(entries);
  size_t i = 0;
  for (int32_t head = 0; head < r.num_heads; ++head) {
    int64_t position = -1;
    const size_t begin = i;
    for (; i < begin + static_cast<size_t>(r.keep); ++i) {
      const uint64_t difference = varint(kMostInt);
      if (difference == 0) bad("positions do not ascend");
      position += static_cast<int64_t>(difference);
      if (position > static_cast<int64_t>(kMostInt)) bad("a position is out of range");
      r.positions[i] = static_cast<int32_t>(position);
    }
    if (payload_.size() - at_ < 2 * static_cast<size_t>(r.keep)) bad("scores are missing");
    for (size_t j = begin; j < i; ++j, at_ += 2) {
      const auto low = static_cast<unsigned char>(payload_[at_]);
      const auto high = static_cast<unsigned char>(payload_[at_ + 1]);
      r.scores[j] = bf16_to_f32(static_cast<uint16_t>(low | high << 8));
    }
  }
  if (at_ != payload_.size()) bad("the record holds more than it announces");
  offset_ += kPrefixBytes + static_cast<int64_t>(size);
  return true;
}

}  // namespace zipage
