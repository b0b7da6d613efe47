// HTTP requests out of bytes, whole and in pieces, right and wrong; thoughts out of text.
#include <gtest/gtest.h>
#include <string>

#include "server/reasoning.h"
#include "server/request_reader.h"
#include "server/turn.h"

namespace zipage::server {
namespace {

// Feeds `bytes` in pieces; what is left over is returned.
std::string feed(RequestReader& reader,
                 const std::string& bytes,
                 size_t piece,
                 uint64_t most_body_bytes = 1 << 20) {
  std::string waiting;
  bool accepted = false;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    waiting += bytes.substr(at, piece);
    if (reader.done() || reader.error().status != 0) continue;
    waiting.erase(0, reader.feed(waiting));
    if (reader.head_ready() && !accepted) {
      accepted = true;
      reader.accept_body(most_body_bytes);
      waiting.erase(0, reader.feed(waiting));
    }
  }
  return waiting;
}

TEST(RequestReader, ReadsInPiecesOfAnySize) {
  const std::string one =
      "POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nX-Y:  z \r\nContent-Length: 5\r\n\r\nhello";
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= one.size(); ++piece) {
    RequestReader reader({});
    EXPECT_EQ(feed(reader, one + "GET /", piece), "GET /");
    ASSERT_TRUE(reader.done()) << piece;
    const HttpRequest request = reader.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/x");
    EXPECT_EQ(request.query, "a=b");
    EXPECT_EQ(request.header("x-y"), "z");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keep_alive);
    RequestReader second({});
    EXPECT_EQ(feed(second, chunked, piece), "");
    ASSERT_TRUE(second.done()) << piece << second.error().message;
    EXPECT_EQ(second.take().body, "abcde");
  }
}

TEST(RequestReader, NamesWhatIsWrong) {
  const auto status = [](const std::string& bytes) {
    ReadLimits limits;
    limits.max_header_bytes = 1000;
    RequestReader reader(limits);
    feed(reader, bytes, 64, /*most_body_bytes=*/100);
    return reader.error().status;
  };
  EXPECT_EQ(status("\x16\x03\x01 hello\r\n\r\n"), 400);
  EXPECT_EQ(status("GET\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/3.7\r\n\r\n"), 505);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nA: " + std::string(2000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"), 413);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n80\r\n" +
                   std::string(128, 'a') + "\r\n0\r\n\r\n"),
            413);
  // Two ways to say where a body ends: a way to smuggle requests past a proxy.
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "0\r\n\r\n"),
            400);
}

TEST(RequestReader, Expect100) {
  RequestReader reader({});
  reader.feed("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(reader.expects_continue());
  reader.accept_body(3);
  reader.feed("abc");
  EXPECT_TRUE(reader.done());
}

TEST(Turn, FramesAnswers) {
  Turn old({.http10 = true, .keep_alive = true}, [] {});
  old.begin_stream({.content_type = "text/event-stream"});
  old.write("abc");
  old.end_stream();
  const std::string text = old.take_output();
  EXPECT_EQ(text.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\n\r\nabc"));
  EXPECT_FALSE(old.keep_alive());
  Turn turn({}, [] {});
  turn.add_header("X-A", "b\r\nX-Evil: 1");
  turn.respond({.status = 200, .body = "hi"});
  const std::string answer = turn.take_output();
  EXPECT_EQ(answer.find("Evil"), std::string::npos);
  EXPECT_NE(answer.find("Content-Length: 2\r\n"), std::string::npos);
}

std::pair<std::string, std::string> split(ReasoningMode mode,
                                          const std::string& text,
                                          size_t piece) {
  ReasoningSplitter splitter(mode);
  std::string thought, answer;
  for (size_t at = 0; at < text.size(); at += piece)
    splitter.push(text.substr(at, piece), &thought, &answer);
  splitter.finish(&thought, &answer);
  return {thought, answer};
}

TEST(Reasoning, SplitsWhateverThePieces) {
  using Pair = std::pair<std::string, std::string>;
  for (size_t piece = 1; piece < 12; ++piece) {
    EXPECT_EQ(split(ReasoningMode::kMaybe, "<think>a <b> </thin</think>c</think>", piece),
              (Pair{"a <b> </thin", "c</think>"}));
    EXPECT_EQ(split(ReasoningMode::kMaybe, "<thin air", piece), (Pair{"", "<thin air"}));
    EXPECT_EQ(split(ReasoningMode::kMaybe, "a<think>b", piece), (Pair{"", "a<think>b"}));
    EXPECT_EQ(split(ReasoningMode::kInside, "a<think>b</think>c", piece), (Pair{"a<think>b", "c"}));
    EXPECT_EQ(split(ReasoningMode::kInside, "\n<think>a</think>", piece), (Pair{"a", ""}));
    EXPECT_EQ(split(ReasoningMode::kInside, "never ends </thi", piece),
              (Pair{"never ends </thi", ""}));
    EXPECT_EQ(split(ReasoningMode::kOff, "<think>a", piece), (Pair{"", "<think>a"}));
  }
  EXPECT_EQ(reasoning_mode("", "x<think>"), ReasoningMode::kOff);
  EXPECT_EQ(reasoning_mode("qwen3", "x<think>\n"), ReasoningMode::kInside);
  EXPECT_EQ(reasoning_mode("qwen3", "x<think>\n\n</think>\n\n"), ReasoningMode::kOff);
  EXPECT_EQ(reasoning_mode("qwen3", "x"), ReasoningMode::kMaybe);
  EXPECT_EQ(reasoning_mode("deepseek_r1", "x"), ReasoningMode::kInside);
}

}  // namespace
}  // namespace zipage::server
