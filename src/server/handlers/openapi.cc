// GET /openapi.json: made from the tables of routes and fields.
#include <boost/json.hpp>

#include "server/field_table.h"
#include "server/handlers/handlers.h"
#include "server/router.h"
#include "server/server_options.h"

namespace zipage::server {
namespace {

namespace json = boost::json;

const char* type_name(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "boolean";
    case FieldType::kInteger:
      return "integer";
    case FieldType::kNumber:
      return "number";
    case FieldType::kString:
      return "string";
    case FieldType::kArray:
      return "array";
    case FieldType::kObject:
      return "object";
    case FieldType::kAny:
      break;
  }
  return nullptr;
}

json::object body_schema(unsigned endpoint) {
  json::object properties;
  for (const FieldInfo& field : field_table()) {
    if ((field.endpoints & endpoint) == 0) continue;
    json::object property{{"description", field.text}, {"nullable", true}};
    if (const char* type = type_name(field.type)) property["type"] = type;
    if (field.type == FieldType::kArray) property["items"] = json::object{};
    properties[field.name] = std::move(property);
  }
  return {
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
}

unsigned endpoint_of(std::string_view path) {
  return path == "/v1/chat/completions" ? kChat
         : path == "/v1/completions"    ? kCompletion
         : path == "/tokenize"          ? kTokenize
         : path == "/detokenize"        ? kDetokenize
                                        : 0;
}

}  // namespace

void handle_openapi(Service&, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  json::object paths;
  for (const Route& route : routes()) {
    json::object operation{
        {"summary", route.text},
        {"responses", json::object{{"200", json::object{{"description", "done"}}},
                                   {"default", json::object{{"description", "an error object"}}}}}};
    if (route.open) operation["security"] = json::array{};
    if (const unsigned endpoint = endpoint_of(route.name)) {
      json::object content{{"application/json", json::object{{"schema", body_schema(endpoint)}}}};
      operation["requestBody"] = json::object{{"required", true}, {"content", std::move(content)}};
    }
    std::string path(route.name);
    if (path.ends_with('/')) {
      path += "{id}";
      operation["parameters"] =
          json::array{json::object{{"name", "id"},
                                   {"in", "path"},
                                   {"required", true},
                                   {"schema", json::object{{"type", "string"}}}}};
    }
    paths[path] = json::object{{route.method == "GET" ? "get" : "post", std::move(operation)}};
  }
  json::object schemes{{"key", json::object{{"type", "http"}, {"scheme", "bearer"}}}};
  json::object document{{"openapi", "3.0.3"},
                        {"info", json::object{{"title", "Zipage"}, {"version", kVersion}}},
                        {"security", json::array{json::object{{"key", json::array{}}}}},
                        {"paths", std::move(paths)},
                        {"components", json::object{{"securitySchemes", std::move(schemes)}}}};
  exchange->respond({.body = json::serialize(document)});
}

}  // namespace zipage::server
