#include "server/auth.h"

#include <algorithm>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace zipage::server {
namespace {

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  unsigned int length = 0;
  ZIPAGE_CHECK(
      EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1);
  return digest;
}

bool lists(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(sha256(key));
}

bool ApiKeys::accepts(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != kScheme[i]) return false;
  }
  const Digest digest = sha256(authorization.substr(kScheme.size()));
  int found = 0;
  for (const Digest& known : digests_)
    found |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0 ? 1 : 0;
  return found != 0;
}

bool allows_any_origin(const CorsOptions& options) { return lists(options.allowed_origins, "*"); }

std::vector<Header> cors_headers(const CorsOptions& options,
                                 std::string_view origin,
                                 bool preflight,
                                 std::string_view requested_headers) {
  std::vector<Header> headers;
  const bool any = allows_any_origin(options);
  if (origin.empty() || (!any && !lists(options.allowed_origins, origin))) return headers;
  // With credentials the wildcard is not allowed to be sent.
  const bool wildcard = any && !options.allow_credentials;
  headers.push_back({"Access-Control-Allow-Origin", wildcard ? "*" : std::string(origin)});
  if (!wildcard) headers.push_back({"Vary", "Origin"});
  if (options.allow_credentials) headers.push_back({"Access-Control-Allow-Credentials", "true"});
  if (!preflight) {
    headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id"});
    return headers;
  }
  headers.push_back({"Access-Control-Allow-Methods", lists(options.allowed_methods, "*")
                                                         ? "GET, HEAD, POST, OPTIONS"
                                                         : joined(options.allowed_methods)});
  if (!lists(options.allowed_headers, "*")) {
    headers.push_back({"Access-Control-Allow-Headers", joined(options.allowed_headers)});
  } else if (!requested_headers.empty()) {
    headers.push_back({"Access-Control-Allow-Headers", std::string(requested_headers)});
  }
  headers.push_back({"Access-Control-Max-Age", "600"});
  return headers;
}

}  // namespace zipage::server
