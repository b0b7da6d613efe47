// Sends requests to a server as many clients would, and notes when each token came.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "cli/http_client.h"

namespace zipage::cli {

struct LoadTarget {
  BaseUrl url;
  std::string api_key;    // empty: none
  bool insecure = false;  // TLS without a check of the certificate
};

struct LoadRequest {
  std::string id;    // of the data set; names it in files
  std::string path;  // "/v1/completions"
  std::string body;
};

struct LoadOptions {
  double request_rate = std::numeric_limits<double>::infinity();  // a second
  double burstiness = 1;              // shape of the gamma distribution of gaps; 1: Poisson
  int64_t max_concurrency = 0;        // 0: no limit
  double duration_seconds = 0;        // > 0: goes round the requests for so long
  std::chrono::seconds timeout{600};  // without a byte
  uint64_t seed = 0;
  bool keep_output = false;  // text and token ids of the answers
  int64_t slow_readers = 0;  // clients beside the load that hardly read their streams
};

// What became of one request. Times are seconds since the start of the run.
struct LoadResult {
  size_t request = 0;   // index into the requests
  int status = 0;       // of HTTP; 0: no answer
  std::string failure;  // empty: answered in full
  double start = 0, first_token = -1, last_token = -1, end = 0;
  std::vector<float> gaps;  // between chunks with tokens
  int64_t prompt_tokens = 0, output_tokens = 0, chunks = 0;
  double retry_after = -1;  // of a refusal; -1: none named
  std::string text;
  std::vector<int32_t> token_ids;
};

struct LoadProgress {
  int64_t finished = 0, failed = 0, in_flight = 0, total = 0;
  int64_t chunks = 0;
  double seconds = 0;
};

struct LoadRun {
  std::vector<LoadResult> results;  // in the order of their ends
  double seconds = 0, cpu_seconds = 0;
  int64_t peak_in_flight = 0;
  int64_t slow_readers_dropped = 0;
  bool interrupted = false;
};

// `tick` is called ten times a second; false ends the run.
LoadRun run_load(const LoadTarget& target,
                 const LoadOptions& options,
                 const std::vector<LoadRequest>& requests,
                 const std::function<bool(const LoadProgress&)>& tick);

struct PlainResponse {
  int status = 0;
  std::string body;
};
// One GET. Throws Error that names the address when nobody answers.
PlainResponse http_get(const LoadTarget& target, const std::string& path);

}  // namespace zipage::cli
