// What stands behind the endpoints: the engine (when it is loaded), the requests in progress, the
// metrics. Knows no socket.
//
// A request comes in two parts: refuse_head() when its headers are there, so that nobody's body is
// read who has no key, and handle() when it is whole. Large bodies are then read by a worker, and
// what they ask for is started back on the io thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "zipage/engine.h"

#include "server/auth.h"
#include "server/body_budget.h"
#include "server/body_limits.h"
#include "server/generation_request.h"
#include "server/host_names.h"
#include "server/mailbox.h"
#include "server/metrics.h"
#include "server/retry_after.h"
#include "server/server_options.h"
#include "server/turn.h"
#include "server/worker_pool.h"

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
  // Large bodies are read, and large answers built, on threads of the service's own from now on.
  void start_workers(size_t num_threads, size_t most_waiting);
  // Nothing of the service touches the engine or posts any more.
  void stop_workers();

  // One request. The answer comes now or later; errors are answers too.
  void handle(HttpRequest request, const std::shared_ptr<Turn>& turn);
  // Answers a request whose headers alone say that it is refused. False: its body may come.
  bool refuse_head(const HttpRequest& head, const std::shared_ptr<Turn>& turn);
  // Answers a request whose body is refused before it is whole.
  void refuse_body(const HttpRequest& head,
                   const std::shared_ptr<Turn>& turn,
                   const HttpResponse& response);
  // The answer to what could not be read as a request.
  void handle_unreadable(const ReadError& error, const std::shared_ptr<Turn>& turn);

  void drain() { draining_ = true; }
  bool draining() const { return draining_; }
  bool loading() const { return engine_.load() == nullptr; }
  // Why the engine serves no more; ok while it does, or loads.
  const Status& engine_failure() const { return engine_failure_; }
  // Asks the engine how it is. Now and then.
  void check_engine();
  // Requests whose body is read or that are in the engine.
  size_t num_generations() const { return generations_.size() + num_jobs_; }
  int64_t num_unfinished_sequences() const { return num_unfinished_sequences_; }
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
  const std::shared_ptr<BodyBudget>& body_budget() const { return body_budget_; }
  const std::shared_ptr<const CountLimits>& count_limits() const { return count_limits_; }
  uint64_t max_body_bytes() const;
  // Throws the ApiError of a full queue when so many more sequences do not fit into it.
  void check_queue(int64_t wanted);
  // Starts a request; throws ApiError when the queue is full.
  void generate(GenerationRequest request, const std::shared_ptr<Exchange>& exchange);
  void count_sequences(int64_t change);

  // What is left to do on the io thread when the work on a body is done.
  using Then = std::function<void()>;
  // Runs `work`, and then what it returns on the io thread. A `heavy` one is run by a worker where
  // there are workers; others here and now, and their exceptions come out of this call. Those of a
  // worker become the exchange's answer. `work` is destroyed where it ran.
  void work(bool heavy, const std::shared_ptr<Exchange>& exchange, std::function<Then()> work);

 private:
  void receive(std::vector<Delivery>& deliveries);
  void deliver(Delivery& delivery);
  std::string request_id(const HttpRequest& request);
  // Headers and the log line that go with whatever the answer is. True: it was a preflight and is
  // answered.
  bool begin_answer(const HttpRequest& request, const std::shared_ptr<Turn>& turn);
  // Throws what the headers alone say against a request.
  void check_head(const HttpRequest& request) const;
  void check_body_headers(const HttpRequest& request) const;
  // The answer to what the handling of a request threw.
  void answer_exception(std::exception_ptr error, Exchange& exchange, const std::string& what);

  const ServerOptions options_;
  const ApiKeys keys_;
  const HostNames host_names_;
  const Mailbox::Post post_;
  Metrics metrics_;
  std::shared_ptr<Mailbox> mailbox_;
  std::atomic<Engine*> engine_{nullptr};
  std::optional<ModelContext> model_;
  std::string fingerprint_;
  const int64_t created_;
  bool draining_ = false;
  std::mt19937_64 random_;
  uint64_t next_generation_ = 1;
  int64_t num_unfinished_sequences_ = 0;
  size_t num_jobs_ = 0;
  Status engine_failure_;
  std::shared_ptr<BodyBudget> body_budget_;
  std::shared_ptr<const CountLimits> count_limits_;
  RetryAfter retry_after_;
  std::unordered_map<uint64_t, std::shared_ptr<Generation>> generations_;
  std::vector<Generation*> touched_;
  // Step thread only.
  int64_t counted_tokens_ = 0;
  // Last: its jobs use the rest.
  std::unique_ptr<WorkerPool> workers_;
};

}  // namespace zipage::server
