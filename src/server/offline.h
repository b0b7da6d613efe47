// The endpoints without HTTP, on the thread that steps the engine: the same checks and the same
// answers as a server's.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "zipage/engine.h"

#include "server/http.h"
#include "server/server_options.h"
#include "server/service.h"

namespace zipage::server {

// Thread: the one that creates it; it steps the engine too.
class Offline {
 public:
  explicit Offline(ServerOptions options);

  // For EngineOptions::step_done.
  std::function<void()> step_done() {
    return [this] { service_.step_done(); };
  }
  void set_engine(Engine& engine) { service_.set_engine(engine); }

  // POST of `body` to `path`. `answered` is called once, now or in deliver().
  void post(const std::string& path,
            std::string body,
            const std::string& request_id,
            std::function<void(const HttpResponse&)> answered);
  // What the last step brought. After each step.
  void deliver();
  size_t num_in_progress() const { return service_.num_generations(); }

 private:
  std::deque<std::function<void()>> tasks_;
  Service service_;
};

}  // namespace zipage::server
