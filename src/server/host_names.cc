#include "server/host_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unistd.h>
#include <utility>

namespace zipage::server {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "name:8000" -> "name", "[::1]:8000" -> "[::1]", "name." -> "name".
std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, authority.find(']') + 1);
  std::string_view name = authority.substr(0, authority.find(':'));
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

bool is_ipv4(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

// Names under these are nobody's to register (RFC 6761, 6762, 8375, and ICANN's "internal").
constexpr std::array<std::string_view, 5> kPrivateSuffixes{".localhost", ".local", ".internal",
                                                           ".lan", ".home.arpa"};

}  // namespace

HostNames::HostNames(std::vector<std::string> allowed, const std::string& own) {
  for (const std::string& name : allowed) {
    any_ = any_ || name == "*";
    allowed_.push_back(lower(name));
  }
  allowed_.push_back(lower(own));
  std::array<char, 256> machine{};
  if (gethostname(machine.data(), machine.size() - 1) == 0)
    allowed_.push_back(lower(machine.data()));
}

bool HostNames::accepts(std::string_view authority) const {
  if (any_ || authority.empty()) return true;
  const std::string name = lower(without_port(authority));
  // A name without a dot is a machine of the local network or a container.
  if (name.starts_with('[') || is_ipv4(name) || name.find('.') == std::string::npos) return true;
  for (const std::string_view suffix : kPrivateSuffixes) {
    if (name.ends_with(suffix)) return true;
  }
  return std::any_of(allowed_.begin(), allowed_.end(), [&](const std::string& known) {
    if (known.starts_with("*.")) return name.ends_with(std::string_view(known).substr(1));
    return name == known;
  });
}

}  // namespace zipage::server
