#include "server/service.h"

#include <algorithm>
#include <ctime>
#include <functional>

#include "zipage/tokenizer.h"

#include "server/api_error.h"
#include "server/generation.h"
#include "server/router.h"

namespace zipage::server {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Service::Service(ServerOptions options, Mailbox::Post post)
    : options_(std::move(options)),
      keys_(options_.api_keys),
      metrics_(options_.metrics_prefix),
      mailbox_(std::make_shared<Mailbox>(
          std::move(post), [this](std::vector<Delivery>& deliveries) { receive(deliveries); })),
      created_(std::time(nullptr)),
      random_(std::random_device{}()) {}

Service::~Service() = default;

void Service::set_engine(Engine& engine) {
  const EngineInfo& info = engine.info();
  std::vector<std::string> names = options_.served_model_names;
  if (names.empty()) names.push_back(info.model_name);
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
  engine_.store(&engine);
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

void Service::receive(std::vector<Delivery>& deliveries) {
  touched_.clear();
  for (Delivery& delivery : deliveries) {
    const auto found = generations_.find(delivery.generation);
    if (found == generations_.end()) continue;
    if (found->second->deliver(delivery)) touched_.push_back(found->second.get());
  }
  for (Generation* generation : touched_) {
    generation->flush();
    if (generation->ended()) generations_.erase(generation->key());
  }
}

void Service::check_queue(int64_t wanted) {
  const int64_t most = options_.limits.max_queued_requests;
  if (most > 0 && wanted > most)
    fail_field("prompt", "{} prompts; at most {} may be in progress", wanted, most);
  if (most > 0 && num_unfinished_prompts_ + wanted > most) {
    throw ApiError(429, "",
                   fmt::format("the queue is full: {} prompts are in progress, at most {} may be "
                               "(--max-queued-requests)",
                               num_unfinished_prompts_, most),
                   retry_after_.refuse(seconds_now(), wanted));
  }
}

void Service::generate(GenerationRequest request, const std::shared_ptr<Exchange>& exchange) {
  check_queue(static_cast<int64_t>(request.prompts.size()));
  const uint64_t key = next_generation_++;
  const auto generation = std::make_shared<Generation>(*this, key, std::move(request), exchange);
  generations_.emplace(key, generation);
  try {
    generation->start();
  } catch (...) {
    if (generation->ended()) generations_.erase(key);
    throw;
  }
}

void Service::count_prompts(int64_t change) {
  num_unfinished_prompts_ += change;
  if (change > 0) retry_after_.begin(seconds_now());
  if (change < 0) retry_after_.finished(seconds_now(), -change);
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

void Service::handle(HttpRequest request, const std::shared_ptr<Turn>& turn) {
  request.request_id = request_id(request);
  turn->add_header("X-Request-Id", request.request_id);
  // Without --allowed-origins there is no CORS: OPTIONS is a method like others, behind the key.
  const bool preflight = request.method == "OPTIONS" && !options_.cors.allowed_origins.empty() &&
                         !request.header("access-control-request-method").empty();
  for (Header& header : cors_headers(options_.cors, request.header("origin"), preflight,
                                     request.header("access-control-request-headers")))
    turn->add_header(std::move(header.name), std::move(header.value));
  if (draining_) turn->close_after();
  std::string handler = "none";
  const auto started = std::chrono::steady_clock::now();
  const auto done = [this, started, method = request.method, path = request.path,
                     id = request.request_id](const std::string& name, int status) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    metrics_.http_request(name, method, status, seconds.count());
    if (options_.disable_access_log) return;
    const bool quiet = name == "/health" || name == "/ping" || name == "/metrics";
    log(quiet ? "debug" : "info",
        fmt::format("\"{} {}\" {} {:.1f} ms id={}", method, path.substr(0, 200), status,
                    1e3 * seconds.count(), id));
  };
  if (const Route* found = find_route(request.path)) handler = found->name;
  turn->on_done([done, handler](int status) { done(handler, status); });
  try {
    if (preflight) {
      turn->respond({.status = 204});
      return;
    }
    route(request, turn);
  } catch (const ApiError& error) {
    turn->respond(error_response(error.status(), error.what(), error.param(), error.retry_after()));
  } catch (const std::exception& error) {
    log("error",
        fmt::format("{} {}: {}", request.method, request.path.substr(0, 200), error.what()));
    if (turn->started()) {
      turn->abandon();
    } else {
      turn->respond(error_response(500, "internal error; the server's log has the reason"));
    }
  }
}

void Service::route(const HttpRequest& request, const std::shared_ptr<Turn>& turn) {
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
    HttpResponse response = error_response(
        405, fmt::format("{}: expected {}, found {}", found->name, found->method, request.method));
    response.headers.push_back({"Allow", std::string(found->method)});
    turn->respond(std::move(response));
    return;
  }
  if (found->needs_engine && loading()) throw ApiError(503, "", "Loading model");
  if (found->refused_in_drain && draining_) throw ApiError(503, "", "the server is shutting down");
  found->handle(*this, request, turn);
}

void Service::handle_unreadable(const ReadError& error, const std::shared_ptr<Turn>& turn) {
  turn->close_after();
  metrics_.http_request("none", "none", error.status, 0);
  turn->respond(error_response(error.status, error.message));
}

}  // namespace zipage::server
