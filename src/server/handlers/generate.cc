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

}  // namespace

void handle_chat(Service& service,
                 const HttpRequest& request,
                 const std::shared_ptr<Exchange>& exchange) {
  service.check_queue(1);  // before the work of reading the body
  auto parsed = parse_chat(parse_body(request.body), service.model(), request.request_id);
  log_request(service, parsed);
  service.generate(std::move(parsed), exchange);
}

void handle_completion(Service& service,
                       const HttpRequest& request,
                       const std::shared_ptr<Exchange>& exchange) {
  service.check_queue(1);
  auto parsed = parse_completion(parse_body(request.body), service.model(), request.request_id);
  log_request(service, parsed);
  service.generate(std::move(parsed), exchange);
}

}  // namespace zipage::server
