// Reads the fields of a JSON body by name and type. Nothing is silently ignored: a field that is
// not in the table is a 400, and one that is in it and was not read is our bug.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/field_table.h"
#include "server/json_scan.h"

namespace zipage::server {

// The 400 for a scan that has passed a limit.
ApiError scan_failure(const JsonScan& scan);

// The body as an object. A 400 for what passes the limits, is not JSON, not UTF-8, nested too deeply
// or no object. It lies in memory of its own, so that a large one is freed at once.
boost::json::object parse_body(std::string_view body,
                               const std::shared_ptr<const CountLimits>& limits);

class Fields {
 public:
  // Fails on the first field that `endpoint` does not have and that is not null: null is absent.
  Fields(const boost::json::object& object, unsigned endpoint);

  // Null when absent or null. Each reads the field: it counts as seen.
  const boost::json::value* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  std::vector<int32_t> token_ids(std::string_view name);
  // A string or a list of at most so many, of so many bytes in all.
  std::vector<std::string> texts(std::string_view name, size_t most, size_t most_bytes);
  // A field of Support::kNeutral: `neutral` is the only value accepted.
  void only(std::string_view name, bool neutral, std::string_view accepted);

  // CHECKs that every field of the body was read.
  void finish() const;

 private:
  const boost::json::object& object_;
  std::vector<std::string_view> seen_;
};

// A value's text for messages, cut to a readable length.
std::string shown(const boost::json::value& value);
// The integer that a value is; none for other values. Clients in languages without integers send
// 16.0 or 1e3.
std::optional<int64_t> exact_integer(const boost::json::value& value);
// Ids of a JSON array; `field` is named in errors.
std::vector<int32_t> read_token_ids(const boost::json::value& value, const std::string& field);

}  // namespace zipage::server
