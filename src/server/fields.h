// Reads the fields of a JSON body by name and type. Nothing is silently ignored: a field that is
// not in the table is a 400, and one that is in it and was not read is our bug.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/field_table.h"

namespace zipage::server {

// The body as an object. A 400 for what is not JSON, not UTF-8, nested too deeply or no object.
boost::json::object parse_body(std::string_view body);

class Fields {
 public:
  // Fails on the first field that `endpoint` does not have.
  Fields(const boost::json::object& object, unsigned endpoint);

  // Null when absent or null. Each reads the field: it counts as seen.
  const boost::json::value* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  std::vector<int32_t> token_ids(std::string_view name);
  std::vector<std::string> texts(std::string_view name, size_t most);  // a string or a list
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
// Ids of a JSON array; `field` is named in errors.
std::vector<int32_t> read_token_ids(const boost::json::value& value, const std::string& field);

}  // namespace zipage::server
