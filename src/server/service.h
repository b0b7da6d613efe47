// What stands behind the endpoints: the engine (when it is loaded), the requests in progress, the
// metrics. Knows no socket.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "zipage/engine.h"

#include "server/auth.h"
#include "server/generation_request.h"
#include "server/mailbox.h"
#include "server/metrics.h"
#include "server/retry_after.h"
#include "server/server_options.h"
#include "server/turn.h"

namespace zipage::server {

class Generation;

// Thread: the io thread, except step_done().
class Service {
 public:
  Service(ServerOptions options, Mailbox::Post post);
  ~Service();

  // Requests are served from now on. The engine must outlive the service or its stop().
  void set_engine(Engine& engine);
  // EngineOptions::step_done. Thread: the engine's.
  void step_done();

  // One request. The answer comes now or later; errors are answers too.
  void handle(HttpRequest request, const std::shared_ptr<Turn>& turn);
  // The answer to what could not be read as a request.
  void handle_unreadable(const ReadError& error, const std::shared_ptr<Turn>& turn);

  void drain() { draining_ = true; }
  bool draining() const { return draining_; }
  bool loading() const { return engine_.load() == nullptr; }
  size_t num_generations() const { return generations_.size(); }
  int64_t num_unfinished_prompts() const { return num_unfinished_prompts_; }
  void abort_all();

  // For handlers.
  const ServerOptions& options() const { return options_; }
  Engine& engine() const { return *engine_.load(); }
  Engine* engine_or_null() const { return engine_.load(); }
  const ModelContext& model() const { return *model_; }
  const std::string& fingerprint() const { return fingerprint_; }
  int64_t created() const { return created_; }
  Metrics& metrics() { return metrics_; }
  std::shared_ptr<Mailbox> mailbox() const { return mailbox_; }
  void log(const char* level, const std::string& line) const {
    if (options_.log) options_.log(level, line);
  }
  // Throws the ApiError of a full queue when so many more prompts do not fit into it.
  void check_queue(int64_t wanted);
  // Starts a request; throws ApiError when the engine refuses it.
  void generate(GenerationRequest request, const std::shared_ptr<Exchange>& exchange);
  void count_prompts(int64_t change);

 private:
  void receive(std::vector<Delivery>& deliveries);
  std::string request_id(const HttpRequest& request);
  void route(const HttpRequest& request, const std::shared_ptr<Turn>& turn);

  const ServerOptions options_;
  const ApiKeys keys_;
  Metrics metrics_;
  std::shared_ptr<Mailbox> mailbox_;
  std::atomic<Engine*> engine_{nullptr};
  std::optional<ModelContext> model_;
  std::string fingerprint_;
  const int64_t created_;
  bool draining_ = false;
  std::mt19937_64 random_;
  uint64_t next_generation_ = 1;
  int64_t num_unfinished_prompts_ = 0;
  RetryAfter retry_after_;
  std::unordered_map<uint64_t, std::shared_ptr<Generation>> generations_;
  std::vector<Generation*> touched_;
  int64_t counted_tokens_ = 0;  // step thread only
};

}  // namespace zipage::server
