#include "server/offline.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "server/api_error.h"
#include "server/router.h"

namespace zipage::server {
namespace {

// A whole answer goes to a callback; there is nobody to stream to.
class WholeAnswer : public Exchange {
 public:
  explicit WholeAnswer(std::function<void(const HttpResponse&)> answered)
      : answered_(std::move(answered)) {}
  void respond(HttpResponse response) override {
    if (auto answered = std::exchange(answered_, nullptr)) answered(response);
  }
  void fail(HttpResponse response) override { respond(std::move(response)); }
  void begin_stream(HttpResponse) override { ZIPAGE_CHECK(false); }
  bool ready() override { return true; }
  bool write(std::string_view) override { return false; }
  void end_stream() override {}
  void on_gone(std::function<void()>) override {}

 private:
  std::function<void(const HttpResponse&)> answered_;
};

}  // namespace

Offline::Offline(ServerOptions options)
    : service_(std::move(options),
               [this](std::function<void()> task) { tasks_.push_back(std::move(task)); }) {}

void Offline::post(const std::string& path,
                   std::string body,
                   const std::string& request_id,
                   std::function<void(const HttpResponse&)> answered) {
  HttpRequest request{.method = "POST", .path = path, .body = std::move(body)};
  request.request_id = request_id;
  const auto exchange = std::make_shared<WholeAnswer>(std::move(answered));
  try {
    const Route* route = find_route(path);
    if (route == nullptr || route->method != "POST")
      throw ApiError(404, "url", "no such endpoint: " + path.substr(0, 200));
    route->handle(service_, request, exchange);
  } catch (const ApiError& error) {
    exchange->respond(error_response(error.status(), error.what(), error.param()));
  } catch (const std::exception& error) {
    service_.log("error", path.substr(0, 200) + ": " + error.what());
    exchange->respond(error_response(500, "internal error; the log has the reason"));
  }
}

void Offline::deliver() {
  while (!tasks_.empty()) {
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
}

}  // namespace zipage::server
