// The endpoints.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/http.h"

namespace zipage::server {

class Service;

using Handler = void (*)(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);

struct Route {
  std::string_view method, name;  // a name that ends with "/" takes every path below it
  Handler handle;
  bool open = false;              // without an API key
  bool needs_engine = false;      // 503 while the model loads
  bool refused_in_drain = false;  // 503 while the server shuts down
  std::string_view text;          // for /openapi.json
};

std::span<const Route> routes();
// Null: no such path.
const Route* find_route(std::string_view path);

}  // namespace zipage::server
