// GET /v1/models and /v1/models/{id}.
#include <boost/json.hpp>
#include <charconv>

#include "server/api_error.h"
#include "server/handlers/handlers.h"
#include "server/service.h"
#include "server/text_offsets.h"

namespace zipage::server {
namespace {

namespace json = boost::json;

json::object model_card(const Service& service, const std::string& name) {
  const EngineInfo& info = service.engine().info();
  json::object permission{{"id", "modelperm-" + name},
                          {"object", "model_permission"},
                          {"created", service.created()},
                          {"allow_create_engine", false},
                          {"allow_sampling", true},
                          {"allow_logprobs", true},
                          {"allow_search_indices", false},
                          {"allow_view", true},
                          {"allow_fine_tuning", false},
                          {"organization", "*"},
                          {"group", nullptr},
                          {"is_blocking", false}};
  json::object meta{{"n_ctx_train", info.max_model_len},
                    {"n_params", info.num_parameters},
                    {"n_vocab", info.vocab_size},
                    {"size", info.weight_bytes}};
  return {{"id", name},
          {"object", "model"},
          {"created", service.created()},
          {"owned_by", "zipage"},
          {"root", lossy_text(info.model_name)},
          {"parent", nullptr},
          {"max_model_len", info.max_model_len},
          {"permission", json::array{std::move(permission)}},
          {"meta", std::move(meta)}};
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
            text.data() + i + 3) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

void handle_models(Service& service, HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  json::array data;
  for (const std::string& name : service.model().names) data.push_back(model_card(service, name));
  exchange->respond(
      {.body = json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}})});
}

void handle_model(Service& service,
                  HttpRequest& request,
                  const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string wanted = percent_decoded(std::string_view(request.path).substr(kPrefix.size()));
  for (const std::string& name : service.model().names) {
    if (name != wanted) continue;
    exchange->respond({.body = json::serialize(model_card(service, name))});
    return;
  }
  throw ApiError(404, "model",
                 fmt::format("The model `{}` does not exist.", wanted.substr(0, 200)));
}

}  // namespace zipage::server
