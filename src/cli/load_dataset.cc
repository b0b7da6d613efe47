#include "cli/load_dataset.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <random>

#include "base/error.h"
#include "cli/json_lines.h"
#include "cli/problems.h"

namespace zipage::cli {
namespace {

namespace json = boost::json;

class Maker {
 public:
  explicit Maker(const DatasetOptions& options)
      : o_(options),
        chat_(options.endpoint.ends_with("/chat/completions")),
        random_(options.seed) {}

  std::vector<LoadRequest> random_requests() {
    std::vector<LoadRequest> requests;
    const std::vector<int64_t> prefix = ids(o_.prefix_len);
    for (int64_t i = 0; i < o_.num_prompts; ++i) {
      std::vector<int64_t> prompt = prefix;
      for (const int64_t id : ids(length(o_.input_len))) prompt.push_back(id);
      requests.push_back(request(std::to_string(i), prompt, length(o_.output_len)));
    }
    return requests;
  }

  std::vector<LoadRequest> trace_requests() {
    std::vector<LoadRequest> requests;
    constexpr int64_t kMost = int64_t{1} << 24;
    read_json_lines(o_.trace_path, [&](const JsonLine& line) {
      const std::vector<int64_t> prompt = ids(line.integer("prompt_tokens", 1, kMost));
      requests.push_back(
          request(std::to_string(line.number()), prompt, line.integer("output_tokens", 1, kMost)));
    });
    return counted(std::move(requests), "--trace", o_.trace_path);
  }

  std::vector<LoadRequest> problem_requests() {
    std::vector<LoadRequest> requests;
    for (const Problem& problem : read_problems(o_.problems_path)) {
      json::object body = common(o_.output_len_given ? o_.output_len : 0);
      if (chat_) {
        body["messages"] = json::array{json::object{{"role", "user"}, {"content", problem.prompt}}};
      } else {
        body["prompt"] = problem.prompt;
        body["add_special_tokens"] = false;
        // The endpoint's own default is 16.
        if (!o_.output_len_given) body["max_tokens"] = 1 << 20;
      }
      requests.push_back({problem.id, o_.endpoint, json::serialize(body)});
    }
    return counted(std::move(requests), "--problems", o_.problems_path);
  }

  std::vector<LoadRequest> batch_requests() {
    std::vector<LoadRequest> requests;
    read_json_lines(o_.batch_path, [&](const JsonLine& line) {
      json::object body = line.object("body");
      body["stream"] = o_.stream;
      if (o_.stream) body["stream_options"] = json::object{{"include_usage", true}};
      if (!o_.model.empty()) body["model"] = o_.model;
      requests.push_back({line.text("custom_id"), line.text("url"), json::serialize(body)});
    });
    return counted(std::move(requests), "--batch", o_.batch_path);
  }

 private:
  json::object common(int64_t max_tokens) const {
    json::object body;
    if (!o_.model.empty()) body["model"] = o_.model;
    if (max_tokens > 0) body[chat_ ? "max_completion_tokens" : "max_tokens"] = max_tokens;
    if (o_.temperature) body["temperature"] = *o_.temperature;
    if (o_.ignore_eos) body["ignore_eos"] = true;
    if (o_.return_token_ids) body["return_token_ids"] = true;
    body["stream"] = o_.stream;
    if (o_.stream) body["stream_options"] = json::object{{"include_usage", true}};
    return body;
  }

  LoadRequest request(const std::string& id, const std::vector<int64_t>& prompt, int64_t length) {
    json::object body = common(length);
    if (chat_) {
      // A conversation has no ids: short words instead, about a token each.
      std::string text;
      for (const int64_t word : prompt) text += (text.empty() ? "w" : " w") + std::to_string(word);
      body["messages"] = json::array{json::object{{"role", "user"}, {"content", text}}};
    } else {
      body["prompt"] = json::value_from(prompt);
    }
    return {id, o_.endpoint, json::serialize(body)};
  }

  std::vector<int64_t> ids(int64_t count) {
    std::uniform_int_distribution<int64_t> draw(0, o_.vocab_size - 1);
    std::vector<int64_t> list(static_cast<size_t>(count));
    for (int64_t& id : list) id = draw(random_);
    return list;
  }

  int64_t length(int64_t mean) {
    const auto least =
        static_cast<int64_t>(std::floor(static_cast<double>(mean) * (1 - o_.range_ratio)));
    const auto most =
        static_cast<int64_t>(std::ceil(static_cast<double>(mean) * (1 + o_.range_ratio)));
    return std::uniform_int_distribution<int64_t>(std::max<int64_t>(least, 1), most)(random_);
  }

  std::vector<LoadRequest> counted(std::vector<LoadRequest> requests,
                                   const char* flag,
                                   const std::string& path) const {
    if (requests.empty()) fail_invalid("{} {}: no requests in the file", flag, path);
    if (!o_.num_prompts_given) return requests;
    const auto wanted = static_cast<size_t>(o_.num_prompts);
    const size_t have = requests.size();
    requests.reserve(wanted);
    for (size_t i = have; i < wanted; ++i) requests.push_back(requests[i - have]);
    requests.resize(wanted);
    return requests;
  }

  const DatasetOptions& o_;
  const bool chat_;
  std::mt19937_64 random_;
};

}  // namespace

std::vector<LoadRequest> make_requests(const DatasetOptions& options) {
  const int files =
      !options.problems_path.empty() + !options.trace_path.empty() + !options.batch_path.empty();
  if (files > 1) fail_invalid("--problems, --trace, --batch: give one of them");
  Maker maker(options);
  if (!options.problems_path.empty()) return maker.problem_requests();
  if (!options.trace_path.empty()) return maker.trace_requests();
  if (!options.batch_path.empty()) return maker.batch_requests();
  return maker.random_requests();
}

std::unordered_map<std::string, ExpectedAnswer> read_expected(const std::string& path) {
  std::unordered_map<std::string, ExpectedAnswer> answers;
  read_json_lines(path, [&](const JsonLine& line) {
    ExpectedAnswer answer;
    const auto read_ids = [&](const json::value* list) {
      if (list == nullptr || !list->is_array()) return;
      for (const json::value& id : list->as_array())
        answer.token_ids.push_back(static_cast<int32_t>(id.to_number<int64_t>()));
    };
    if (!line.has("custom_id")) {
      answer.text = line.text("completion");
      if (line.has("token_ids")) read_ids(&line.value("token_ids"));
      answers[line.text("id")] = std::move(answer);
      return;
    }
    boost::system::error_code error;
    const json::value& response = line.value("response");
    const json::value* choice = response.find_pointer("/body/choices/0", error);
    if (choice == nullptr) line.fail_field("response", "no answer in it");
    const json::value* text = choice->find_pointer("/text", error);
    if (text == nullptr) text = choice->find_pointer("/message/content", error);
    if (text != nullptr && text->is_string()) answer.text = std::string(text->as_string());
    read_ids(choice->find_pointer("/token_ids", error));
    answers[line.text("custom_id")] = std::move(answer);
  });
  return answers;
}

}  // namespace zipage::cli
