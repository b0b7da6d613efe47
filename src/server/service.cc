#include "server/service.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <ctime>
#include <functional>

#include "zipage/tokenizer.h"

#include "server/api_error.h"
#include "server/generation.h"
#include "server/router.h"
#include "server/text_offsets.h"

namespace zipage::server {

namespace {

constexpr const char* kInternalError = "internal error; the server's log has the reason";

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Service::Service(ServerOptions options, Mailbox::Post post)
    : options_(std::move(options)),
      keys_(options_.api_keys),
      host_names_(options_.allowed_hosts, options_.host),
      post_(std::move(post)),
      metrics_(options_.metrics_prefix),
      mailbox_(std::make_shared<Mailbox>(
          post_, [this](std::vector<Delivery>& deliveries) { receive(deliveries); })),
      created_(std::time(nullptr)),
      random_(std::random_device{}()),
      body_budget_(std::make_shared<BodyBudget>(options_.limits.max_body_memory_bytes)),
      count_limits_(server::count_limits({})) {}

Service::~Service() = default;

void Service::set_engine(Engine& engine) {
  const EngineInfo& info = engine.info();
  std::vector<std::string> names = options_.served_model_names;
  if (names.empty()) names.push_back(info.model_name);
  // A name may be a folder's, and a folder's any bytes; answers are UTF-8.
  for (std::string& name : names) name = lossy_text(name);
  model_.emplace(ModelContext{.tokenizer = engine.tokenizer(),
                              .info = info,
                              .defaults = engine.default_sampling_params(),
                              .options = options_,
                              .names = std::move(names)});
  for (int32_t id = 0; id < engine.tokenizer().vocab_size(); ++id) {
    model_->longest_token_bytes =
        std::max(model_->longest_token_bytes,
                 static_cast<int64_t>(engine.tokenizer().id_to_bytes(id).size()));
  }
  fingerprint_ =
      fmt::format("zipage-{}-{:08x}", kVersion,
                  static_cast<uint32_t>(std::hash<std::string>{}(
                      info.architecture + info.model_name + info.dtype + info.kv_cache_dtype)));
  metrics_.set_max_model_len(info.max_model_len);
  count_limits_ = server::count_limits(
      {.max_model_len = info.max_model_len,
       .vocab_size = info.vocab_size,
       .max_sequences_per_request = options_.limits.max_sequences_per_request});
  engine_.store(&engine);
}

uint64_t Service::max_body_bytes() const {
  return most_body_bytes(options_.limits.read.max_body_bytes,
                         model_ ? model_->info.max_model_len : 0);
}

void Service::start_workers(size_t num_threads, size_t most_waiting) {
  workers_ = std::make_unique<WorkerPool>(num_threads, most_waiting);
}

void Service::stop_workers() {
  if (workers_) workers_->stop();
}

void Service::check_engine() {
  const Engine* engine = engine_or_null();
  if (engine == nullptr || !engine_failure_.ok()) return;
  Status health = engine->health();
  if (health.ok()) return;
  log("error", "the engine has failed and serves no more: " + health.message());
  engine_failure_ = Status(health.code(), without_source_places(health.message()));
}

void Service::step_done() {
  mailbox_->flush();
  Engine* engine = engine_.load();
  if (engine == nullptr) return;
  const EngineStats stats = engine->stats();
  const int64_t tokens = stats.prompt_tokens + stats.generation_tokens;
  if (tokens > counted_tokens_) metrics_.iteration(tokens - counted_tokens_);
  counted_tokens_ = tokens;
}

// A failure of ours with one request's results is that request's.
void Service::deliver(Delivery& delivery) {
  const auto found = generations_.find(delivery.generation);
  if (found == generations_.end()) return;
  const std::shared_ptr<Generation> generation = found->second;
  try {
    if (generation->deliver(delivery)) touched_.push_back(generation.get());
  } catch (const std::exception& error) {
    generation->fail(error.what());
  }
}

void Service::receive(std::vector<Delivery>& deliveries) {
  touched_.clear();
  for (Delivery& delivery : deliveries) deliver(delivery);
  for (Generation* generation : touched_) {
    try {
      generation->flush();
    } catch (const std::exception& error) {
      generation->fail(error.what());
    }
    if (generation->ended()) generations_.erase(generation->key());
  }
}

void Service::check_queue(int64_t wanted) {
  const int64_t most = options_.limits.max_queued_requests;
  if (most > 0 && wanted > most)
    fail_field("n", "{} sequences; at most {} may be in progress", wanted, most);
  if (most > 0 && num_unfinished_sequences_ + wanted > most) {
    throw ApiError(429, "",
                   fmt::format("the queue is full: {} sequences are in progress, at most {} may be",
                               num_unfinished_sequences_, most),
                   retry_after_.refuse(seconds_now(), wanted));
  }
}

void Service::generate(GenerationRequest request, const std::shared_ptr<Exchange>& exchange) {
  // The client may have gone while a worker read its request.
  if (!exchange->ready()) return;
  check_queue(static_cast<int64_t>(request.prompts.size()) * request.sampling.n);
  const uint64_t key = next_generation_++;
  const bool heavy = request.prompts.size() > 16 || num_list_entries(request.sampling) > 256;
  const auto generation = std::make_shared<Generation>(*this, key, std::move(request), exchange);
  generations_.emplace(key, generation);
  generation->prepare();
  try {
    work(heavy, exchange, [this, generation]() -> Then {
      generation->submit_all();
      return [this, generation] {
        generation->started();
        if (generation->ended()) generations_.erase(generation->key());
      };
    });
  } catch (...) {
    generation->withdraw();
    if (generation->ended()) generations_.erase(key);
    throw;
  }
}

void Service::count_sequences(int64_t change) {
  num_unfinished_sequences_ += change;
  retry_after_.change(seconds_now(), change);
}

void Service::work(bool heavy,
                   const std::shared_ptr<Exchange>& exchange,
                   std::function<Then()> work) {
  if (!heavy || !workers_) {
    const Then then = work();
    then();
    return;
  }
  ++num_jobs_;
  const bool taken = workers_->submit([this, exchange, work = std::move(work)]() mutable {
    Then then;
    std::exception_ptr error;
    try {
      then = work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;
    post_([this, exchange, then = std::move(then), error] {
      --num_jobs_;
      try {
        if (error) std::rethrow_exception(error);
        then();
      } catch (...) {
        answer_exception(std::current_exception(), *exchange, "a large request");
      }
    });
  });
  if (taken) return;
  --num_jobs_;
  throw ApiError(503, "", "too many large requests wait to be read");
}

void Service::abort_all() {
  for (const auto& [key, generation] : generations_) generation->abort();
}

std::string Service::request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool plain =
      !given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), [](char c) {
        return c > ' ' && c < 127 && c != '"' && c != '\\';
      });
  if (plain) return std::string(given);
  return fmt::format("{:016x}{:016x}", random_(), random_());
}

bool Service::begin_answer(const HttpRequest& request, const std::shared_ptr<Turn>& turn) {
  turn->add_header("X-Request-Id", request.request_id);
  // Without --allowed-origins there is no CORS: OPTIONS is a method like others, behind the key.
  const bool preflight = request.method == "OPTIONS" && !options_.cors.allowed_origins.empty() &&
                         !request.header("access-control-request-method").empty();
  for (Header& header : cors_headers(options_.cors, request.header("origin"), preflight,
                                     request.header("access-control-request-headers")))
    turn->add_header(std::move(header.name), std::move(header.value));
  if (draining_) turn->close_after();
  std::string handler = "none";
  if (const Route* found = find_route(request.path)) handler = found->name;
  const auto started = std::chrono::steady_clock::now();
  turn->on_done([this, started, handler, method = request.method, path = request.path,
                 id = request.request_id](int status) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    metrics_.http_request(handler, method, status, seconds.count());
    if (options_.disable_access_log) return;
    const bool quiet = handler == "/health" || handler == "/ping" || handler == "/metrics";
    log(quiet ? "debug" : "info",
        fmt::format("\"{} {}\" {} {:.1f} ms id={}", method.substr(0, 20), path.substr(0, 200),
                    status, 1e3 * seconds.count(), id));
  });
  if (preflight) turn->respond({.status = 204});
  return preflight;
}

void Service::answer_exception(std::exception_ptr error,
                               Exchange& exchange,
                               const std::string& what) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const ApiError& refusal) {
    HttpResponse response =
        error_response(refusal.status(), refusal.what(), refusal.param(), refusal.retry_after());
    for (const Header& header : refusal.headers()) response.headers.push_back(header);
    exchange.respond(std::move(response));
  } catch (const std::exception& bug) {
    log("error", fmt::format("{}: {}", what, bug.what()));
    exchange.fail(error_response(500, kInternalError));
  }
}

void Service::handle(HttpRequest request, const std::shared_ptr<Turn>& turn) {
  request.request_id = request_id(request);
  if (begin_answer(request, turn)) return;
  const std::string what = request.method + " " + request.path.substr(0, 200);
  try {
    check_head(request);
    find_route(request.path)->handle(*this, request, turn);
  } catch (...) {
    answer_exception(std::current_exception(), *turn, what);
  }
}

bool Service::refuse_head(const HttpRequest& head, const std::shared_ptr<Turn>& turn) {
  try {
    // A preflight has no body; handle() answers it.
    if (head.method != "OPTIONS" || options_.cors.allowed_origins.empty()) check_head(head);
    return false;
  } catch (const ApiError&) {
    // Answered below, with what goes with every answer.
  }
  if (head.has_body()) turn->close_after();
  handle(head, turn);
  return true;
}

void Service::refuse_body(const HttpRequest& head,
                          const std::shared_ptr<Turn>& turn,
                          const HttpResponse& response) {
  HttpRequest request = head;
  request.request_id = request_id(request);
  turn->close_after();
  if (!begin_answer(request, turn)) turn->respond(response);
}

void Service::check_head(const HttpRequest& request) const {
  // Without a key a page of any origin could read our answers under a name of its own.
  if (keys_.empty() && !host_names_.accepts(request.host)) {
    throw ApiError(
        403, "", fmt::format("Host '{}' is not a name of this server", request.host.substr(0, 80)));
  }
  const Route* found = find_route(request.path);
  const bool open =
      found != nullptr && (found->open || (options_.open_metrics && found->name == "/metrics"));
  if (!open && !keys_.empty() && !keys_.accepts(request.header("authorization")))
    throw ApiError(401, "", "a valid API key is needed: Authorization: Bearer KEY");
  if (found == nullptr)
    throw ApiError(404, "", fmt::format("no such endpoint: {}", request.path.substr(0, 200)));
  const bool allowed =
      request.method == found->method || (request.method == "HEAD" && found->method == "GET");
  if (!allowed) {
    throw ApiError(405, "",
                   fmt::format("{}: expected {}, found {}", found->name, found->method,
                               request.method.substr(0, 20)))
        .with_header("Allow", std::string(found->method));
  }
  if (found->needs_engine && loading()) throw ApiError(503, "", "Loading model");
  if (found->needs_engine && !engine_failure_.ok()) {
    throw ApiError(503, "", "the engine has failed: " + engine_failure_.message());
  }
  if (found->refused_in_drain && draining_) throw ApiError(503, "", "the server is shutting down");
  check_body_headers(request);
}

void Service::check_body_headers(const HttpRequest& request) const {
  if (!request.has_body()) return;
  const uint64_t length = request.content_length.value_or(0);
  if (length > max_body_bytes())
    throw ApiError(413, "", fmt::format("body: more than {} bytes", max_body_bytes()));
  if (request.method != "POST") return;
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && !boost::beast::iequals(encoding, "identity")) {
    throw ApiError(415, "",
                   fmt::format("Content-Encoding: expected none, found {}", encoding.substr(0, 40)))
        .with_header("Accept-Encoding", "identity");
  }
  std::string_view type = request.header("content-type");
  type = type.substr(0, type.find_first_of("; \t"));
  // A page of another origin may send text/plain and forms without asking first.
  if (!type.empty() && !boost::beast::iequals(type, "application/json")) {
    throw ApiError(
        415, "",
        fmt::format("Content-Type: expected application/json, found {}", type.substr(0, 80)));
  }
  if (!body_budget_->has_room(length))
    throw ApiError(503, "", "the server holds as many request bodies as it may");
}

void Service::handle_unreadable(const ReadError& error, const std::shared_ptr<Turn>& turn) {
  turn->close_after();
  metrics_.http_request("none", "none", error.status, 0);
  turn->respond(error_response(error.status, error.message));
}

}  // namespace zipage::server
