// The endpoints.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/http.h"

namespace zipage::server {

class Service;

using Handler = void (*)(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);

struct Route {
  // A name that ends with "/" takes every path below it.
  std::string_view method, name;
  Handler handle;
  // Without an API key.
  bool open = false;
  // 503 while the model loads, and after the engine has failed.
  bool needs_engine = false;
  // 503 while the server shuts down.
  bool refused_in_drain = false;
  // For /openapi.json.
  std::string_view text;
};

std::span<const Route> routes();
// Null: no such path.
const Route* find_route(std::string_view path);

}  // namespace zipage::server
