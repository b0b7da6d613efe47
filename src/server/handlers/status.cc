// GET /health, /ping, /version, /load and /metrics.
#include <boost/json.hpp>

#include "server/handlers/handlers.h"
#include "server/service.h"

namespace zipage::server {

// Loading and shutting down were refused by the route.
void handle_health(Service&, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = R"({"status":"ok"})"});
}

void handle_ping(Service&, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = "{}"});
}

void handle_version(Service&, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = boost::json::serialize(boost::json::object{{"version", kVersion}})});
}

void handle_load(Service& service, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  boost::json::object load{{"server_load", service.num_generations()},
                           {"unfinished_sequences", service.num_unfinished_sequences()},
                           {"body_bytes", service.body_budget()->used_bytes()}};
  if (const Engine* engine = service.engine_or_null()) {
    const EngineStats stats = engine->stats();
    load["running"] = stats.num_running;
    load["waiting"] = stats.num_waiting;
    load["used_blocks"] = stats.num_blocks - stats.num_free_blocks;
    load["num_blocks"] = stats.num_blocks;
  }
  exchange->respond({.body = boost::json::serialize(load)});
}

void handle_metrics(Service& service, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  if (const Engine* engine = service.engine_or_null()) {
    const EngineStats stats = engine->stats();
    response.body = service.metrics().render(&stats, &engine->info(), service.model().names[0]);
  } else {
    response.body = service.metrics().render(nullptr, nullptr, "");
  }
  exchange->respond(std::move(response));
}

}  // namespace zipage::server
