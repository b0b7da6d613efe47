// The public reader of KV traces.
#include "zipage/kv_trace.h"

#include "base/error.h"
#include "compress/kv_trace.h"

namespace zipage {
namespace {

class File final : public KvTraceFile {
 public:
  explicit File(const std::string& path) : reader_(path) {}
  Result<bool> next(KvTraceRecord& record) override {
    try {
      return reader_.next(record);
    } catch (...) {
      return current_exception_status();
    }
  }

 private:
  KvTraceReader reader_;
};

}  // namespace

Result<std::unique_ptr<KvTraceFile>> KvTraceFile::open(const std::string& path) {
  try {
    return std::unique_ptr<KvTraceFile>(std::make_unique<File>(path));
  } catch (...) {
    return current_exception_status();
  }
}

}  // namespace zipage
