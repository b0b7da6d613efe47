// zipage serve MODEL: the OpenAI-compatible HTTP server.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <unistd.h>

#include "base/error.h"
#include "cli/answer_flags.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "server/server.h"

namespace zipage::cli {
namespace {

using server::ServerOptions;

struct ServeCommand {
  EngineFlags engine;
  ServerOptions options;
  std::string max_body, max_body_memory, max_header, stream_buffer, port = "8000";
  bool exit_on_engine_error = true;
  int64_t keep_alive_seconds = 75, read_seconds = 30, write_seconds = 30;

  void add_to(CLI::App& sub);
  void add_limits(CLI::App& sub);
  ServerOptions checked(const EngineOptions& engine_options, LogLevel threshold) const;
  int run() const;
};

// "--flag a,b" and "--flag a --flag b" alike.
CLI::Option* add_list(CLI::App& sub,
                      const char* name,
                      std::vector<std::string>& list,
                      const char* text) {
  return sub.add_option(name, list, text)->delimiter(',');
}

void ServeCommand::add_to(CLI::App& sub) {
  engine.add_to(sub);
  const size_t before = sub.get_options().size();
  sub.add_option("--host", options.host, "Address to listen on")->capture_default_str();
  sub.add_option("--port", port, "Port to listen on; 0: any that is free")->capture_default_str();
  add_answer_flags(sub, options);
  sub.add_option("--api-key", options.api_keys,
                 "A key that clients may use (repeatable); guards all but /health and /ping");
  sub.add_flag("--open-metrics", options.open_metrics, "/metrics without an API key");
  add_list(sub, "--allowed-hosts", options.allowed_hosts,
           "Without --api-key: names that clients may ask for in Host, besides addresses and local "
           "names; *.example.org, or * for any");
  sub.add_flag("--exit-on-engine-error,!--no-exit-on-engine-error", exit_on_engine_error,
               "End with exit code 1 when the engine has failed for good, so that a supervisor "
               "starts it again (default); otherwise /health says 503 from then on");
  sub.add_option("--ssl-certfile", options.ssl_certfile, "PEM file of the certificate: serve TLS");
  sub.add_option("--ssl-keyfile", options.ssl_keyfile, "PEM file of its private key");
  sub.add_option("--ssl-ca-certs", options.ssl_ca_certs, "PEM file of CAs for client certificates");
  sub.add_flag("--ssl-require-client-cert", options.ssl_require_client_cert,
               "Refuse clients without a certificate of --ssl-ca-certs");
  add_list(sub, "--allowed-origins", options.cors.allowed_origins, "CORS: origins, or *");
  add_list(sub, "--allowed-methods", options.cors.allowed_methods, "CORS: methods, or *");
  add_list(sub, "--allowed-headers", options.cors.allowed_headers, "CORS: headers, or *");
  sub.add_flag("--allow-credentials", options.cors.allow_credentials, "CORS: credentials");
  sub.add_option("--metrics-prefix", options.metrics_prefix,
                 "Prefix of metric names; vllm for existing boards")
      ->capture_default_str();
  sub.add_flag("--enable-log-requests", options.enable_log_requests,
               "Log prompts and parameters of requests");
  sub.add_option("--max-log-len", options.max_log_len, "Most bytes of a prompt in the log")
      ->capture_default_str();
  sub.add_flag("--disable-access-log", options.disable_access_log, "No log line a request");
  add_limits(sub);
  group_options(sub, before, "Server");
}

void ServeCommand::add_limits(CLI::App& sub) {
  sub.add_option("--max-body-size", max_body,
                 "Largest request body (default 16MiB, or 32 bytes a token of --max-model-len)");
  sub.add_option("--max-body-memory", max_body_memory,
                 "Most memory for request bodies that come or wait (default 256MiB)");
  sub.add_option("--max-header-size", max_header, "Largest request headers (default 16KiB)");
  sub.add_option("--max-stream-buffer", stream_buffer,
                 "Output that a client may be behind before it is dropped (default 1MiB)");
  sub.add_option("--max-connections", options.limits.max_connections, "Most open connections")
      ->capture_default_str();
  sub.add_option("--timeout-keep-alive", keep_alive_seconds, "Seconds between two requests")
      ->capture_default_str();
  sub.add_option("--timeout-read", read_seconds, "Seconds for a whole request to come")
      ->capture_default_str();
  sub.add_option("--timeout-write", write_seconds, "Seconds without progress of an answer")
      ->capture_default_str();
}

ServerOptions ServeCommand::checked(const EngineOptions& engine_options, LogLevel threshold) const {
  ServerOptions o = options;
  const int64_t number = parse_tokens("--port", port);
  if (number > 65535) fail_invalid("--port {}: expected 0 to 65535", port);
  o.port = static_cast<uint16_t>(number);
  for (const std::string& key : o.api_keys) {
    if (key.empty()) fail_invalid("--api-key: an empty key");
  }
  check_answer_flags(o);
  constexpr const char* kNameCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (o.metrics_prefix.empty() ||
      o.metrics_prefix.find_first_not_of(kNameCharacters) != std::string::npos)
    fail_invalid("--metrics-prefix '{}': expected letters, digits and '_'", o.metrics_prefix);
  server::Limits& limits = o.limits;
  if (!max_body.empty()) {
    const int64_t bytes = parse_bytes("--max-body-size", max_body);
    if (bytes < 1) fail_invalid("--max-body-size {}: expected at least 1 byte", max_body);
    limits.read.max_body_bytes = static_cast<uint64_t>(bytes);
  }
  if (!max_body_memory.empty()) {
    const int64_t bytes = parse_bytes("--max-body-memory", max_body_memory);
    if (bytes < (1 << 20))
      fail_invalid("--max-body-memory {}: expected at least 1MiB", max_body_memory);
    limits.max_body_memory_bytes = static_cast<uint64_t>(bytes);
  }
  if (!max_header.empty()) {
    const int64_t bytes = parse_bytes("--max-header-size", max_header);
    if (bytes < 256 || bytes > (1 << 24))
      fail_invalid("--max-header-size {}: expected 256 bytes to 16MiB", max_header);
    limits.read.max_header_bytes = static_cast<uint32_t>(bytes);
  }
  if (!stream_buffer.empty()) {
    const int64_t bytes = parse_bytes("--max-stream-buffer", stream_buffer);
    if (bytes < 4096)
      fail_invalid("--max-stream-buffer {}: expected at least 4096 bytes", stream_buffer);
    limits.max_stream_buffer_bytes = static_cast<size_t>(bytes);
  }
  const auto seconds = [](const char* flag, int64_t value) {
    if (value < 1) fail_invalid("{} {}: expected at least 1 second", flag, value);
    return std::chrono::seconds(value);
  };
  limits.keep_alive_timeout = seconds("--timeout-keep-alive", keep_alive_seconds);
  limits.read_timeout = seconds("--timeout-read", read_seconds);
  limits.write_timeout = seconds("--timeout-write", write_seconds);
  if (engine_options.max_queued_requests > 0)
    limits.max_queued_requests = engine_options.max_queued_requests;
  o.exit_on_engine_error = exit_on_engine_error;
  o.log = [threshold](const std::string& level, const std::string& line) {
    log_line(threshold, level, line);
  };
  return o;
}

int ServeCommand::run() const {
  EngineOptions engine_options = engine.options();
  const LogLevel threshold = engine.log_level();
  const ServerOptions server_options = checked(engine_options, threshold);
  const auto say = [&](const std::string& line) { log_line(threshold, "info", line); };
  raise_file_limit();  // a socket a client
  server::Server server(server_options);
  server.handle_signals();
  say(fmt::format("listening on http{}://{}:{}", server_options.ssl_certfile.empty() ? "" : "s",
                  server_options.host, server.port()));
  engine_options.step_done = server.step_done();
  // The server counts what is in progress itself, so that a full queue is its 429.
  engine_options.max_queued_requests = 0;
  std::unique_ptr<Engine> model;
  std::exception_ptr failure;
  std::atomic<bool> loaded{false};
  std::thread loader([&] {
    try {
      model = engine.create_engine(engine_options);
      model->start();
      loaded = true;
      server.set_engine(*model);
      const EngineInfo& info = model->info();
      const CompressionOptions& c = info.compression;
      say(c.capped() ? fmt::format("KV budget: {} tokens per layer and head, policy {}",
                                   c.kv_budget, to_string(c.kv_policy))
                     : std::string("KV budget: full, no compression"));
      say("application startup complete");
    } catch (...) {
      failure = std::current_exception();
      loaded = true;
      server.stop();
    }
  });
  server.run();
  if (!loaded) {
    // A signal while the model loads: nothing is there to be finished.
    log_line(threshold, "info", "stopped while loading");
    _exit(kExitInterrupted);
  }
  loader.join();
  if (failure) std::rethrow_exception(failure);
  if (model) model->stop();
  if (const Status reason = server.engine_failure(); !reason.ok())
    fail(reason.code(), "the engine has failed: {}", reason.message());
  say("stopped");
  return server.stopped_early() ? kExitInterrupted : kExitOk;
}

}  // namespace

void add_serve_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* sub = app.add_subcommand("serve", "Serve a model over HTTP, OpenAI-compatible");
  command->add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
