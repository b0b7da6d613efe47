// Failures of ours: whom they end, and what is said of them.
#include "server/api_error.h"
#include "server/loopback.h"

namespace zipage::testing_server {
namespace {

const std::string kHealth = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST(Messages, NameNoPlaceInOurSources) {
  EXPECT_EQ(server::without_source_places("src/engine/engine_impl.cc:12: check failed: a < b"),
            "check failed: a < b");
  EXPECT_EQ(server::without_source_places("/work/x y/src/a.h:1: lost (src/b.cu:22)"),
            "/work/x lost ()");
  EXPECT_EQ(server::without_source_places("model.cc: no such file"), "model.cc: no such file");
}

TEST(EngineFailure, IsSaidByHealthAndEndsTheServer) {
  Loopback loopback;
  EXPECT_EQ(parse_answer(loopback.ask(kHealth)).status, 200);
  loopback.engine.set_health(
      Status(StatusCode::kUnavailable, "src/backend/cuda/device.cc:7: the device is lost"));
  Answer health;
  for (int i = 0; i < 200 && health.status != 503; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    health = parse_answer(loopback.ask(kHealth));
  }
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.error(), "the engine has failed: the device is lost");
  EXPECT_EQ(parse_answer(loopback.ask(post("/v1/completions", R"({"prompt":"x"})"))).status, 503);
  EXPECT_EQ(parse_answer(loopback.ask("GET /ping HTTP/1.0\r\n\r\n")).status, 200);

  ServerOptions options;
  options.exit_on_engine_error = true;
  Loopback ends(options);
  EXPECT_TRUE(ends.server->engine_failure().ok());
  ends.engine.set_health(Status(StatusCode::kInternal, "a bug"));
  ends.join();
  EXPECT_EQ(ends.server->engine_failure().message(), "a bug");
}

// An exception outside a request's handling: the io thread goes on.
TEST(IoThread, SurvivesExceptions) {
  ServerOptions options;
  std::atomic<int> thrown{0};
  options.log = [&](const std::string& level, const std::string& line) {
    if (level == "error" && line.find("the engine has failed") != std::string::npos) {
      ++thrown;
      throw std::runtime_error("the log is full");
    }
  };
  Loopback loopback(options);
  loopback.engine.set_health(Status(StatusCode::kInternal, "a bug"));
  for (int i = 0; i < 500 && thrown < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(thrown, 2);
  EXPECT_EQ(parse_answer(loopback.ask("GET /ping HTTP/1.0\r\n\r\n")).status, 200);
}

// Connected before the end, asking after the drain began: each gets its 503.
TEST(Drain, AnswersFreshConnections) {
  Loopback loopback({}, std::chrono::milliseconds(2));
  loopback.engine.answer = std::string(400, 'x');
  Socket running(loopback.server->port());
  running.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":500})"));
  running.read_until("data: ");
  loopback.server->drain();
  int answered = 0;
  for (int i = 0; i < 40; ++i) {
    Socket socket(loopback.server->port());
    // So that ticks of the server fall between the connection and its request.
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 12));
    socket.send(post("/v1/completions", R"({"prompt":"x"})"));
    answered += parse_answer(socket.read_to_end()).status == 503 ? 1 : 0;
  }
  EXPECT_EQ(answered, 40);
  running.read_to_end();
  loopback.join();
}

TEST(Listening, LocalhostIsBothFamilies) {
  ServerOptions options;
  options.host = "localhost";
  Loopback loopback(options);
  EXPECT_EQ(parse_answer(loopback.ask("GET /ping HTTP/1.0\r\n\r\n")).status, 200);
  const int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (fd < 0) GTEST_SKIP() << "no IPv6";
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(loopback.server->port());
  address.sin6_addr = in6addr_loopback;
  const bool has_loopback =
      ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == ECONNREFUSED;
  if (!has_loopback) GTEST_SKIP() << "no ::1";
  const std::string request = "GET /ping HTTP/1.0\r\n\r\n";
  EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string text(200, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, ::recv(fd, text.data(), text.size(), 0))));
  EXPECT_NE(text.find("200 OK"), std::string::npos);
  ::close(fd);
}

TEST(Options, CredentialsForAnyOriginAreRefused) {
  ServerOptions options;
  options.port = 0;
  options.cors.allowed_origins = {"*"};
  options.cors.allow_credentials = true;
  EXPECT_THROW(server::Server{options}, std::runtime_error);
  options.cors.allowed_origins = {"https://a.example"};
  EXPECT_NO_THROW(server::Server{options});
}

}  // namespace
}  // namespace zipage::testing_server
