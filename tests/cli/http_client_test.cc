// Responses and events out of bytes, however they are cut.
#include "cli/http_client.h"

#include <gtest/gtest.h>
#include <vector>

namespace zipage::cli {
namespace {

// Feeds `bytes` in pieces of `size`; what the reader left is given again.
std::string body_of(ResponseReader& reader, const std::string& bytes, size_t size) {
  std::string body, input;
  for (size_t at = 0; at < bytes.size(); at += size) {
    input += bytes.substr(at, size);
    input.erase(0, reader.feed(input));
    if (reader.header_done()) body += reader.take_body();
  }
  return body;
}

TEST(ResponseReader, ChunkedInPiecesOfAnySize) {
  const std::string bytes =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\nC\r\n, wide\nworld\r\n0\r\n\r\n";
  for (size_t size = 1; size <= bytes.size(); ++size) {
    ResponseReader reader;
    EXPECT_EQ(body_of(reader, bytes, size), "hello, wide\nworld") << size;
    EXPECT_TRUE(reader.done()) << size;
    EXPECT_TRUE(reader.keep_alive());
    EXPECT_EQ(reader.status(), 200);
    EXPECT_EQ(reader.header("content-type"), "text/event-stream");
    EXPECT_EQ(reader.header("retry-after"), "");
  }
}

TEST(ResponseReader, LengthAndWhatFollowsIt) {
  const std::string one = "HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 3\r\n\r\nabc";
  ResponseReader reader;
  EXPECT_EQ(reader.feed(one + one), one.size());
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.take_body(), "abc");
  EXPECT_EQ(reader.status(), 429);
  EXPECT_EQ(reader.header("Retry-After"), "7");
}

TEST(ResponseReader, UntilTheEndOfTheConnection) {
  ResponseReader reader;
  EXPECT_EQ(body_of(reader, "HTTP/1.0 200 OK\r\n\r\nabc", 2), "abc");
  EXPECT_FALSE(reader.done());
  reader.end_of_input();
  EXPECT_TRUE(reader.done());
  EXPECT_FALSE(reader.keep_alive());
}

TEST(ResponseReader, BrokenAnswersAreErrors) {
  for (const std::string bytes :
       {"hello\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"}) {
    ResponseReader reader;
    reader.feed(bytes);
    EXPECT_FALSE(reader.error().empty()) << bytes;
    EXPECT_FALSE(reader.done());
  }
  ResponseReader cut;
  cut.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
  cut.end_of_input();
  EXPECT_FALSE(cut.error().empty());
  EXPECT_FALSE(cut.done());
}

TEST(EventReader, EventsHoweverTheyAreCut) {
  const std::string bytes =
      ": a comment\ndata: one\n\nevent: x\ndata: two\ndata: lines\n\ndata:three\r\n\r\n\n"
      "data: [DONE]\n\ndata: unfinished\n";
  const std::vector<std::string> expected{"one", "two\nlines", "three", "[DONE]"};
  for (size_t size = 1; size <= bytes.size(); ++size) {
    EventReader reader;
    std::vector<std::string> found;
    for (size_t at = 0; at < bytes.size(); at += size)
      reader.feed(bytes.substr(at, size), [&](std::string_view data) { found.emplace_back(data); });
    EXPECT_EQ(found, expected) << size;
  }
}

TEST(BaseUrl, PartsAndErrors) {
  const BaseUrl plain = parse_base_url("--base-url", "http://localhost:8000/");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, "8000");
  EXPECT_EQ(plain.prefix, "");
  EXPECT_FALSE(plain.tls);
  const BaseUrl tls = parse_base_url("--base-url", "https://[::1]/proxy/llm/");
  EXPECT_EQ(tls.host, "::1");
  EXPECT_EQ(tls.port, "443");
  EXPECT_EQ(tls.prefix, "/proxy/llm");
  EXPECT_TRUE(tls.tls);
  EXPECT_EQ(tls.text(), "https://[::1]:443");
  for (const char* bad : {"localhost:8000", "http://", "http://a:", "http://a:b", "http://a:70000",
                          "http://[::1", "ftp://a", "http://:80"}) {
    try {
      (void)parse_base_url("--base-url", bad);
      ADD_FAILURE() << bad;
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("--base-url"), std::string::npos) << bad;
    }
  }
}

}  // namespace
}  // namespace zipage::cli
