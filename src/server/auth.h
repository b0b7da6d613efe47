// API keys and CORS: who may ask, from where.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "server/server_options.h"

namespace zipage::server {

// Keeps digests of the keys; comparing takes the same time whatever is wrong.
class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);
  bool empty() const { return digests_.empty(); }
  // The value of an Authorization header: "Bearer KEY".
  bool accepts(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> digests_;
};

// Whether any page may read answers.
bool allows_any_origin(const CorsOptions& options);

// The CORS headers of an answer to a request with this Origin; none when it is not allowed.
std::vector<Header> cors_headers(const CorsOptions& options,
                                 std::string_view origin,
                                 bool preflight,
                                 std::string_view requested_headers);

}  // namespace zipage::server
