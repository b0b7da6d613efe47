// The HTTP server of an engine. Listens from its construction on; answers 503 until it has one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "zipage/engine.h"

#include "server/server_options.h"

namespace zipage::server {

class Server {
 public:
  // Binds and listens. Throws Error naming the flag at fault.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  // For EngineOptions::step_done. It may be called for as long as the server lives.
  std::function<void()> step_done();
  // Requests are served from now on. Any thread. The engine runs on its own thread, and must be
  // stopped before it or the server goes.
  void set_engine(Engine& engine);

  // Serves on this thread until stop(), until a drain has nothing left to wait for, or (with
  // ServerOptions::exit_on_engine_error) until the engine has failed. Nothing touches the engine
  // after it.
  void run();
  // SIGINT and SIGTERM drain; the second stops at once. Before run().
  void handle_signals();
  // Finishes what runs, refuses what is new, then ends run(). Any thread.
  void drain();
  // Ends run() now; requests in progress are aborted. Any thread.
  void stop();
  // A signal (or stop()) ended run() before its requests were finished.
  bool stopped_early() const;
  // Why the engine serves no more; ok while it does. After run().
  Status engine_failure() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zipage::server
