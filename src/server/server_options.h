// Everything `zipage serve` can be told, apart from the engine's own options.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "zipage/tokenizer.h"

#include "server/request_reader.h"

namespace zipage::server {

struct Limits {
  ReadLimits read;
  size_t max_connections = 8192;
  // Of all bodies that are being received, read or wait to be.
  uint64_t max_body_memory_bytes = 256 << 20;
  // Output that a client has not taken.
  size_t max_stream_buffer_bytes = 1 << 20;
  // Prompts times n.
  int64_t max_sequences_per_request = 1024;
  // Unfinished sequences; 0: no limit.
  int64_t max_queued_requests = 4096;
  // Large bodies that wait for a worker.
  size_t max_waiting_bodies = 256;
  // Between two requests.
  std::chrono::seconds keep_alive_timeout{75};
  // From a request's first byte to its last.
  std::chrono::seconds read_timeout{30};
  // Without progress.
  std::chrono::seconds write_timeout{30};
};

struct CorsOptions {
  // "*": any; empty: no CORS headers.
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_methods{"*"}, allowed_headers{"*"};
  bool allow_credentials = false;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  // 0: any that is free.
  uint16_t port = 8000;
  std::string ssl_certfile, ssl_keyfile, ssl_ca_certs;
  bool ssl_require_client_cert = false;
  // Empty: the engine's model name.
  std::vector<std::string> served_model_names;
  // Empty: open.
  std::vector<std::string> api_keys;
  // Host headers that are answered without a key, besides addresses and local names; "*": any.
  std::vector<std::string> allowed_hosts;
  // /metrics without a key.
  bool open_metrics = false;
  CorsOptions cors;
  Limits limits;
  // Ends run() when the engine has failed for good.
  bool exit_on_engine_error = false;
  // Empty: none.
  std::string reasoning_parser;
  bool trust_request_chat_template = false;
  // Prompts and parameters in the log.
  bool enable_log_requests = false;
  bool disable_access_log = false;
  // Bytes of a prompt.
  int32_t max_log_len = 256;
  std::string metrics_prefix = "zipage";
  // JSON object.
  std::string default_chat_template_kwargs;
  ChatContentFormat chat_template_content_format = ChatContentFormat::kAuto;
  // "debug", "info", "warning", "error". Called on the io thread.
  std::function<void(const std::string& level, const std::string& line)> log;
};

inline constexpr const char* kVersion = "0.1.0";

}  // namespace zipage::server
