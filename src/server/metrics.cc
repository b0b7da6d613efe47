#include "server/metrics.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "server/prometheus.h"

namespace zipage::server {
namespace {

std::vector<double> first_token_bounds() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
}
std::vector<double> inter_token_bounds() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}
std::vector<double> request_bounds() {
  return {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
// 1, 2, 5, 10, ... up to `most`.
std::vector<double> token_bounds(int64_t most) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= static_cast<double>(most); decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= static_cast<double>(most)) bounds.push_back(decade * step);
    }
  }
  return bounds;
}
std::vector<double> iteration_bounds() {
  std::vector<double> bounds{1};
  for (double bound = 8; bound <= 16384; bound *= 2) bounds.push_back(bound);
  return bounds;
}

// A client may send any word as its method; each label value is a time series for ever.
std::string method_label(const std::string& method) {
  for (const char* known :
       {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "none"}) {
    if (method == known) return method;
  }
  return "OTHER";
}

constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};

double open_files() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Field 22 of stat: clock ticks from the machine's start.
double start_time() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  // The program's name is in parentheses, and may hold anything.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  double up = 0;
  std::ifstream("/proc/uptime") >> up;
  const double ticks = std::strtod(field.c_str(), nullptr);
  const double age = up - ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(std::time(nullptr)) - age;
}

void render_process(PrometheusText& text) {
  int64_t virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  text.gauge("process_resident_memory_bytes", "", page * static_cast<double>(resident_pages),
             "Resident memory size in bytes.");
  text.gauge("process_virtual_memory_bytes", "", page * static_cast<double>(virtual_pages),
             "Virtual memory size in bytes.");
  text.counter("process_cpu_seconds_total", "", cpu,
               "Total user and system CPU time spent in seconds.");
  text.gauge("process_open_fds", "", open_files(), "Number of open file descriptors.");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  text.gauge("process_max_fds", "", static_cast<double>(files.rlim_cur),
             "Maximum number of open file descriptors.");
  text.gauge("process_start_time_seconds", "", start_time(),
             "Start time of the process since the epoch in seconds.");
}

}  // namespace

Metrics::Metrics(std::string prefix)
    : prefix_(std::move(prefix)),
      time_to_first_token_(first_token_bounds()),
      inter_token_(inter_token_bounds()),
      e2e_(request_bounds()),
      queue_(request_bounds()),
      inference_(request_bounds()),
      prefill_(request_bounds()),
      decode_(request_bounds()),
      params_n_({1, 2, 5, 10, 20}),
      iteration_tokens_(iteration_bounds()) {
  set_max_model_len(1);
}

void Metrics::set_max_model_len(int64_t tokens) {
  for (Histogram* histogram :
       {&prompt_tokens_, &generation_tokens_, &max_generation_tokens_, &params_max_tokens_})
    *histogram = Histogram(token_bounds(tokens));
}

void Metrics::sequence_finished(const FinishedSequence& s) {
  const size_t reason = s.reason == FinishReason::kStop     ? 0
                        : s.reason == FinishReason::kLength ? 1
                        : s.reason == FinishReason::kAbort  ? 2
                                                            : 3;
  ++finished_[reason];
  e2e_.observe(s.e2e_seconds);
  queue_.observe(s.queue_seconds);
  if (s.prefill_seconds >= 0) {
    prefill_.observe(s.prefill_seconds);
    decode_.observe(s.decode_seconds);
    inference_.observe(s.prefill_seconds + s.decode_seconds);
  }
  prompt_tokens_.observe(static_cast<double>(s.prompt_tokens));
  generation_tokens_.observe(static_cast<double>(s.generation_tokens));
}

void Metrics::request_params(int32_t n, int64_t max_tokens) {
  params_n_.observe(n);
  params_max_tokens_.observe(static_cast<double>(max_tokens));
}

void Metrics::http_request(const std::string& handler,
                           const std::string& method,
                           int status,
                           double seconds) {
  ++http_requests_[{handler, method_label(method), status}];
  http_seconds_
      .try_emplace(handler,
                   std::vector<double>{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 300})
      .first->second.observe(seconds);
}

void Metrics::iteration(int64_t tokens) {
  std::lock_guard lock(iteration_mutex_);
  iteration_tokens_.observe(static_cast<double>(tokens));
}

std::string Metrics::render(const EngineStats* stats,
                            const EngineInfo* info,
                            const std::string& model_name) const {
  PrometheusText text;
  const std::string labels =
      fmt::format("model_name=\"{}\",engine=\"0\"", escape_label(model_name));
  if (stats != nullptr && info != nullptr) render_engine(text, *stats, *info, labels);
  render_requests(text, labels);
  render_http(text);
  render_process(text);
  return text.take();
}

void Metrics::render_requests(PrometheusText& text, const std::string& labels) const {
  const std::string success = name("request_success_total");
  text.family(success, "counter", "Finished sequences by reason.");
  for (size_t i = 0; i < finished_.size(); ++i) {
    text.sample(success, fmt::format("{},finished_reason=\"{}\"", labels, kReasons[i]),
                static_cast<double>(finished_[i]));
  }
  Histogram iterations(iteration_bounds());
  {
    std::lock_guard lock(iteration_mutex_);
    iterations = iteration_tokens_;
  }
  const struct {
    const char* suffix;
    const Histogram& histogram;
    const char* help;
  } all[] = {
      {"time_to_first_token_seconds", time_to_first_token_, "Arrival to first token."},
      {"inter_token_latency_seconds", inter_token_, "Between two tokens of a sequence."},
      {"time_per_output_token_seconds", inter_token_, "The same under its old name."},
      {"e2e_request_latency_seconds", e2e_, "Arrival to last token."},
      {"request_queue_time_seconds", queue_, "Arrival to the first step with the sequence."},
      {"request_inference_time_seconds", inference_, "First step to last token."},
      {"request_prefill_time_seconds", prefill_, "First step to first token."},
      {"request_decode_time_seconds", decode_, "First token to last token."},
      {"request_prompt_tokens", prompt_tokens_, "Prompt tokens of a sequence."},
      {"request_generation_tokens", generation_tokens_, "Generated tokens of a sequence."},
      {"request_max_num_generation_tokens", max_generation_tokens_,
       "Most generated tokens of a request's sequences."},
      {"request_params_max_tokens", params_max_tokens_, "max_tokens of requests."},
      {"request_params_n", params_n_, "n of requests."},
      {"iteration_tokens_total", iterations, "Tokens of an engine step."},
  };
  for (const auto& [suffix, histogram, help] : all) {
    text.family(name(suffix), "histogram", help);
    text.histogram(name(suffix), labels, histogram);
  }
}

void Metrics::render_http(PrometheusText& text) const {
  text.family("http_requests_total", "counter", "Answered requests.");
  for (const auto& [key, count] : http_requests_) {
    const auto& [handler, method, status] = key;
    text.sample("http_requests_total",
                fmt::format("handler=\"{}\",method=\"{}\",status=\"{}\"", handler, method, status),
                static_cast<double>(count));
  }
  text.family("http_request_duration_seconds", "histogram", "From request to whole answer.");
  for (const auto& [handler, histogram] : http_seconds_)
    text.histogram("http_request_duration_seconds", fmt::format("handler=\"{}\"", handler),
                   histogram);
}

}  // namespace zipage::server
