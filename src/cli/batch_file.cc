#include "cli/batch_file.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>

#include "base/error.h"
#include "cli/json_lines.h"

namespace zipage::cli {
namespace {

namespace json = boost::json;

constexpr std::string_view kLineStart = "{\"id\":\"batch_req_";

// Whether the end of a file may be the beginning of a line that we were writing.
bool is_ours(std::string_view tail) {
  return tail.substr(0, kLineStart.size()) == kLineStart.substr(0, tail.size());
}

}  // namespace

std::vector<BatchItem> read_batch(const std::string& path) {
  std::vector<BatchItem> items;
  std::unordered_map<std::string, int64_t> lines;
  read_json_lines(path, [&](const JsonLine& line) {
    BatchItem item;
    item.custom_id = line.text("custom_id");
    if (item.custom_id.empty()) line.fail_field("custom_id", "empty");
    item.method = line.text("method");
    item.url = line.text("url");
    item.body = line.object("body");
    const auto [found, is_new] = lines.emplace(item.custom_id, line.number());
    if (!is_new) {
      line.fail_field("custom_id", fmt::format("'{}' is that of line {} too; each needs its own",
                                               item.custom_id, found->second));
    }
    items.push_back(std::move(item));
  });
  if (items.empty()) fail_invalid("{}: no requests in the file", path);
  return items;
}

std::string batch_line(const std::string& custom_id,
                       const std::string& request_id,
                       int status,
                       const std::string& body) {
  const std::string id = json::serialize(json::string(request_id));
  std::string error = "null";
  if (status != 200) {
    const json::value parsed = json::parse(body);
    if (const auto* object = parsed.as_object().if_contains("error"))
      error = json::serialize(*object);
  }
  return fmt::format(
      "{}{}\",\"custom_id\":{},\"response\":{{\"status_code\":{},\"request_id\":{},\"body\":{}}},"
      "\"error\":{}}}\n",
      kLineStart, request_id, json::serialize(json::string(custom_id)), status, id, body, error);
}

BatchOutput::BatchOutput(std::string path, const std::unordered_set<std::string>& known)
    : path_(std::move(path)) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of write() like a full disk
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) fail(StatusCode::kNotFound, "-o {}: {}", path_, std::strerror(errno));
  try {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      fail(StatusCode::kUnavailable, "-o {}: another process writes to this file", path_);
    struct stat info {};
    if (::fstat(file_, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
      read_existing(known);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

BatchOutput::~BatchOutput() {
  if (file_ >= 0) ::close(file_);
}

void BatchOutput::read_existing(const std::unordered_set<std::string>& known) {
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) {  // no line end: it was being written
      if (!is_ours(line))
        fail_invalid("-o {}:{}: not a line of a batch output; the file is left alone", path_,
                     number);
      cut_ = true;
      break;
    }
    boost::system::error_code error;
    const json::value value = json::parse(line, error);
    const json::object* object = error ? nullptr : value.if_object();
    const json::value* id = object != nullptr ? object->if_contains("custom_id") : nullptr;
    if (id == nullptr || !id->is_string() || !object->contains("response"))
      fail_invalid("-o {}:{}: not a line of a batch output; the file is left alone", path_, number);
    std::string text(id->as_string());
    if (known.count(text) == 0) {
      fail_invalid("-o {}:{}: custom_id '{}' is not in the input; give another file", path_, number,
                   text);
    }
    answered_.insert(std::move(text));
    size_ += static_cast<int64_t>(line.size()) + 1;
  }
  if (cut_ && ::ftruncate(file_, size_) != 0) fail_writing(errno);
  if (::lseek(file_, size_, SEEK_SET) != size_) fail_writing(errno);
}

void BatchOutput::append(const std::string& line) {
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(file_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = errno;
      // Half a line is of no use.
      if (::ftruncate(file_, size_) == 0) (void)::lseek(file_, size_, SEEK_SET);
      fail_writing(error);
    }
    left.remove_prefix(static_cast<size_t>(written));
  }
  size_ += static_cast<int64_t>(line.size());
}

void BatchOutput::close() {
  const bool kept = ::fsync(file_) == 0 || errno == EINVAL || errno == EROFS;
  const int error = errno;
  const bool closed = ::close(file_) == 0;
  file_ = -1;
  if (!kept || !closed) fail_writing(kept ? errno : error);
}

void BatchOutput::fail_writing(int error) {
  fail(StatusCode::kResourceExhausted,
       "-o {}: {}; the answers before it are kept: run the same command again to go on", path_,
       std::strerror(error));
}

}  // namespace zipage::cli
