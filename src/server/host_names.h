// Which Host headers a server without an API key answers.
//
// DNS rebinding: a page of evil.example lets its own name resolve to 127.0.0.1; to the browser the
// local server is then the page's own origin, and the page may read its answers. Such requests carry
// a public domain name in Host. So: addresses, names that no public domain can have and those that
// the operator lists are answered, other names are not.
//
//   HostNames names({"llm.example.org"}, "0.0.0.0");
//   names.accepts("127.0.0.1:8000");   // true
//   names.accepts("evil.example");     // false
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zipage::server {

// Immutable: any thread.
class HostNames {
 public:
  // `allowed`: names without a port, "*.example.org" for every name below it, "*" for any.
  // `own`: the address or name that the server listens on.
  HostNames(std::vector<std::string> allowed, const std::string& own);

  // `authority`: the value of a Host header, with or without a port; empty for none.
  bool accepts(std::string_view authority) const;

 private:
  std::vector<std::string> allowed_;
  bool any_ = false;
};

}  // namespace zipage::server
