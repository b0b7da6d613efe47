// A service over the fake engine, without sockets: bytes of answers are read from the turn.
#pragma once

#include <boost/json.hpp>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "server/fake_engine.h"
#include "server/service.h"
#include "server/turn.h"

namespace zipage::testing_server {

namespace json = boost::json;
using server::Header;
using server::HttpRequest;
using server::ServerOptions;
using server::Service;
using server::Turn;

struct Answer {
  int status = 0;
  std::string head, body;
  json::value parsed() const { return json::parse(body); }
  std::string error(const char* field = "message") const {
    const json::value value = parsed();
    const json::value& text = value.at("error").at(field);
    return text.is_string() ? std::string(text.as_string()) : json::serialize(text);
  }
};

// The body of a chunked answer.
inline std::string unchunked(const std::string& body) {
  std::string text;
  for (size_t at = 0; at < body.size();) {
    size_t used = 0;
    const size_t size = std::stoul(body.substr(at), &used, 16);
    at += used + 2;
    text += body.substr(at, size);
    at += size + 2;
  }
  return text;
}

inline Answer parse_answer(const std::string& bytes) {
  Answer answer;
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  answer.head = bytes.substr(0, end + 2);
  answer.body = bytes.substr(end + 4);
  answer.status = std::stoi(answer.head.substr(9, 3));
  if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos)
    answer.body = unchunked(answer.body);
  return answer;
}

// The JSON of each event; "[DONE]" must be the last one and is left out.
inline std::vector<json::value> events(const Answer& answer) {
  std::vector<json::value> list;
  bool done = false;
  for (size_t at = 0; at < answer.body.size();) {
    const size_t end = answer.body.find("\n\n", at);
    const std::string event = answer.body.substr(at, end - at);
    EXPECT_EQ(event.substr(0, 6), "data: ");
    EXPECT_FALSE(done) << "an event after [DONE]: " << event;
    if (event == "data: [DONE]") {
      done = true;
    } else {
      list.push_back(json::parse(event.substr(6)));
    }
    at = end + 2;
  }
  EXPECT_TRUE(done) << answer.body;
  return list;
}

class ServiceTest : public ::testing::Test {
 protected:
  explicit ServiceTest(ServerOptions options = {}) { make_service(std::move(options)); }

  void make_service(ServerOptions options, bool loaded = true) {
    service = std::make_unique<Service>(std::move(options), [this](std::function<void()> task) {
      ++num_posts;
      tasks.push_back(std::move(task));
    });
    engine.step_done = [this] { service->step_done(); };
    if (loaded) service->set_engine(engine);
  }
  std::shared_ptr<Turn> send(const std::string& method,
                             const std::string& path,
                             const std::string& body = "",
                             std::vector<Header> headers = {},
                             server::TurnOptions options = {}) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    if (!body.empty()) request.content_length = body.size();
    request.headers = std::move(headers);
    options.head_only = method == "HEAD";
    auto turn = std::make_shared<Turn>(options, [] {});
    service->handle(std::move(request), turn);
    return turn;
  }
  void run_tasks() {
    while (!tasks.empty()) {
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }
  // Steps the engine until it is idle, with the io thread's work after each step.
  void finish() {
    while (engine.step()) run_tasks();
    run_tasks();
  }
  Answer ask(const std::string& method,
             const std::string& path,
             const std::string& body = "",
             std::vector<Header> headers = {}) {
    const auto turn = send(method, path, body, std::move(headers));
    finish();
    EXPECT_TRUE(turn->finished() || turn->abandoned());
    return parse_answer(turn->take_output());
  }
  Answer complete(const std::string& fields) {
    return ask("POST", "/v1/completions", "{" + fields + "}");
  }
  Answer chat(const std::string& fields) {
    return ask("POST", "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"hi"}])" +
                   (fields.empty() ? "" : "," + fields) + "}");
  }

  FakeEngine engine;
  std::deque<std::function<void()>> tasks;
  int num_posts = 0;
  std::unique_ptr<Service> service;
};

}  // namespace zipage::testing_server
