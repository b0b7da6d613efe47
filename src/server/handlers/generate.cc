// POST /v1/chat/completions and /v1/completions.
#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/handlers/handlers.h"
#include "server/service.h"

namespace zipage::server {
namespace {

void log_request(const Service& service, const GenerationRequest& request) {
  if (!service.options().enable_log_requests) return;
  const SamplingParams& p = request.sampling;
  for (const Prompt& prompt : request.prompts) {
    std::string text = prompt.text.substr(0, static_cast<size_t>(service.options().max_log_len));
    service.log(
        "info",
        fmt::format("request {}: user {}, {} prompt tokens, n {}, temperature {}, top_p "
                    "{}, max_tokens {}, prompt {}",
                    request.id, boost::json::serialize(boost::json::string(request.user)),
                    prompt.tokens.size(), p.n, p.temperature, p.top_p, p.max_tokens.value_or(0),
                    boost::json::serialize(boost::json::string(text))));
  }
}

using Parse = GenerationRequest (*)(const boost::json::object&,
                                    const ModelContext&,
                                    const std::string&);

// Reads the body (a large one on a worker), then starts what it asks for.
void start(Service& service,
           HttpRequest& request,
           const std::shared_ptr<Exchange>& exchange,
           Parse parse) {
  // Before the work of reading the body.
  service.check_queue(1);
  const bool heavy = is_large_body(request);
  const auto input = std::make_shared<HttpRequest>(std::move(request));
  service.work(heavy, exchange, [&service, input, exchange, parse]() -> Service::Then {
    auto parsed = std::make_shared<GenerationRequest>(
        parse(parse_body(input->body, service.count_limits()), service.model(), input->request_id));
    return [&service, parsed, exchange] {
      log_request(service, *parsed);
      service.generate(std::move(*parsed), exchange);
    };
  });
}

}  // namespace

void handle_chat(Service& service,
                 HttpRequest& request,
                 const std::shared_ptr<Exchange>& exchange) {
  start(service, request, exchange, parse_chat);
}

void handle_completion(Service& service,
                       HttpRequest& request,
                       const std::shared_ptr<Exchange>& exchange) {
  start(service, request, exchange, parse_completion);
}

}  // namespace zipage::server
