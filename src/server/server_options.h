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
  size_t max_stream_buffer_bytes = 1 << 20;     // output that a client has not taken
  int64_t max_sequences_per_request = 1024;     // prompts times n
  int64_t max_queued_requests = 4096;           // unfinished prompts; 0: no limit
  std::chrono::seconds keep_alive_timeout{75};  // between two requests
  std::chrono::seconds read_timeout{30};        // from a request's first byte to its last
  std::chrono::seconds write_timeout{30};       // without progress
};

struct CorsOptions {
  std::vector<std::string> allowed_origins;  // "*": any; empty: no CORS headers
  std::vector<std::string> allowed_methods{"*"}, allowed_headers{"*"};
  bool allow_credentials = false;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any that is free
  std::string ssl_certfile, ssl_keyfile, ssl_ca_certs;
  bool ssl_require_client_cert = false;
  std::vector<std::string> served_model_names;  // empty: the engine's model name
  std::vector<std::string> api_keys;            // empty: open
  bool open_metrics = false;                    // /metrics without a key
  CorsOptions cors;
  Limits limits;
  std::string reasoning_parser;  // empty: none
  bool trust_request_chat_template = false;
  bool enable_log_requests = false;  // prompts and parameters in the log
  bool disable_access_log = false;
  int32_t max_log_len = 256;  // bytes of a prompt
  std::string metrics_prefix = "zipage";
  std::string default_chat_template_kwargs;  // JSON object
  ChatContentFormat chat_template_content_format = ChatContentFormat::kAuto;
  // "debug", "info", "warning", "error". Called on the io thread.
  std::function<void(const std::string& level, const std::string& line)> log;
};

inline constexpr const char* kVersion = "0.1.0";

}  // namespace zipage::server
