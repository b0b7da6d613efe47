// The server on loopback: connections, pipelining, limits, timeouts, clients that misbehave.
#include "server/loopback.h"

namespace zipage::testing_server {
namespace {

const std::string kHealth = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Loopback, KeepAliveAndClose) {
  Loopback loopback;
  Socket socket(loopback.server->port());
  for (int i = 0; i < 3; ++i) {
    socket.send(kHealth);
    EXPECT_NE(socket.read_until("}").find("200 OK"), std::string::npos);
  }
  socket.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(socket.read_to_end().find("Connection: close"), std::string::npos);
  EXPECT_NE(loopback.ask("GET /health HTTP/1.0\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST(Loopback, PipelinedRequestsAreAnsweredInOrder) {
  Loopback loopback;
  Socket socket(loopback.server->port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += post("/v1/completions", R"({"prompt":"x","stream":)" +
                                       std::string(i % 2 ? "true" : "false") +
                                       R"(,"request_id":"r)" + std::to_string(i) + "\"}");
    all += kHealth;
  }
  socket.send(all + "GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string text = socket.read_to_end();
  EXPECT_EQ(count(text, "HTTP/1.1 200 OK"), 41u);
  size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    at = text.find("\"cmpl-r" + std::to_string(i) + "\"", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST(Loopback, MalformedRequestsGetJsonAndAClosedConnection) {
  Loopback loopback;
  const Answer bad = parse_answer(loopback.ask("hello\r\n\r\n"));
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.error("type"), "BadRequestError");
  EXPECT_EQ(
      parse_answer(loopback.ask("GET / HTTP/1.1\r\nA: " + std::string(20000, 'a') + "\r\n\r\n"))
          .status,
      431);
  ServerOptions options;
  options.limits.read.max_body_bytes = 1000;
  Loopback small(options);
  EXPECT_EQ(parse_answer(small.ask(post("/tokenize", std::string(200000, 'x')))).status, 413);
}

TEST(Loopback, ExpectContinue) {
  Loopback loopback;
  Socket socket(loopback.server->port());
  socket.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  EXPECT_NE(socket.read_until("\r\n\r\n").find("100 Continue"), std::string::npos);
  socket.send(R"({"prompt":"x"})");
  EXPECT_NE(socket.read_until("}").find("200 OK"), std::string::npos);
}

TEST(Loopback, SlowRequestsTimeOut) {
  ServerOptions options;
  options.limits.read_timeout = std::chrono::seconds(1);
  options.limits.keep_alive_timeout = std::chrono::seconds(1);
  Loopback loopback(options);
  EXPECT_EQ(parse_answer(loopback.ask("POST /tokenize HTTP/1.1\r\nContent-Le")).status, 408);
  EXPECT_EQ(loopback.ask(""), "");  // an idle connection is closed without a word
}

// A byte now and then does not make the request's time longer.
TEST(Loopback, TrickledRequestsTimeOut) {
  ServerOptions options;
  options.limits.read_timeout = std::chrono::seconds(1);
  Loopback loopback(options);
  Socket socket(loopback.server->port());
  const auto started = std::chrono::steady_clock::now();
  socket.send("GET /health HTTP/1.1\r\nX: ");
  std::thread trickle([&] {
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      socket.send("x");
    }
  });
  EXPECT_EQ(parse_answer(socket.read_until("}}")).status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::milliseconds(1900));
  trickle.join();
}

// Less behind than --max-stream-buffer, and taking nothing.
TEST(Loopback, ReadersThatStandStillTimeOut) {
  ServerOptions options;
  options.limits.write_timeout = std::chrono::seconds(1);
  options.limits.max_stream_buffer_bytes = size_t{1} << 30;
  Loopback loopback(options, std::chrono::microseconds(20));
  loopback.engine.answer = std::string(200000, 'x');
  Socket still(loopback.server->port(), 4096);
  still.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":200000})"));
  still.read_until("data: ");
  EXPECT_TRUE(loopback.idle()) << "the request of a client that takes nothing still runs";
  EXPECT_LT(loopback.engine.stats().generation_tokens, 200000);
}

TEST(Loopback, ConnectionLimit) {
  ServerOptions options;
  options.limits.max_connections = 2;
  Loopback loopback(options);
  Socket first(loopback.server->port()), second(loopback.server->port());
  first.send(kHealth);
  first.read_until("}");
  second.send(kHealth);
  second.read_until("}");
  EXPECT_EQ(parse_answer(loopback.ask("")).status, 503);
  first.close();
  second.send(kHealth);
  EXPECT_NE(second.read_until("}").find("200 OK"), std::string::npos);
}

TEST(Loopback, KilledClientsLeaveNothingBehind) {
  Loopback loopback({}, std::chrono::microseconds(500));
  loopback.engine.answer = std::string(3000, 'x');
  const std::string request =
      post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":3000})");
  for (int i = 0; i < 40; ++i) {
    Socket socket(loopback.server->port());
    socket.send(request);
    if (i % 4 != 0) socket.read_until("data: ");
    if (i % 2 == 0) {
      socket.reset();
    } else {
      socket.close();
    }
  }
  EXPECT_TRUE(loopback.idle());
  EXPECT_EQ(loopback.engine.stats().num_running, 0);
}

TEST(Loopback, SlowReaderIsDroppedAndOthersGoOn) {
  ServerOptions options;
  options.limits.max_stream_buffer_bytes = 64 << 10;
  Loopback loopback(options);
  loopback.engine.answer = std::string(100000, 'x');
  Socket slow(loopback.server->port(), 4096);
  slow.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":100000})"));
  slow.read_until("data: ");
  Socket other(loopback.server->port());
  other.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":50})",
                  "Connection: close\r\n"));
  const Answer answer = parse_answer(other.read_to_end());
  EXPECT_GE(events(answer).size(), 1u);
  EXPECT_TRUE(loopback.idle()) << "the slow reader's request still runs";
}

TEST(Loopback, DrainFinishesWhatRuns) {
  Loopback loopback({}, std::chrono::milliseconds(2));
  loopback.engine.answer = std::string(200, 'x');
  Socket running(loopback.server->port()), idle(loopback.server->port());
  idle.send(kHealth);
  idle.read_until("}");
  running.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":300})"));
  std::string text = running.read_until("data: ");
  loopback.server->drain();
  EXPECT_EQ(idle.read_to_end(), "");  // closed
  EXPECT_EQ(parse_answer(loopback.ask(post("/v1/completions", R"({"prompt":"x"})"))).status, 503);
  text += running.read_to_end();
  EXPECT_EQ(events(parse_answer(text)).back().at("choices").at(0).at("finish_reason"), "stop");
  loopback.join();  // run() ended by itself
  EXPECT_FALSE(loopback.server->stopped_early());
}

TEST(Loopback, WrongOptionsAreNamed) {
  ServerOptions options;
  options.port = 0;
  options.ssl_certfile = "/nowhere.pem";
  EXPECT_THROW(server::Server{options}, std::runtime_error);
  Loopback loopback;
  ServerOptions taken;
  taken.port = loopback.server->port();
  try {
    server::Server second(taken);
    FAIL() << "two servers on one port";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("--port"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace zipage::testing_server
