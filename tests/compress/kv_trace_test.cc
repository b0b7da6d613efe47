#include "compress/kv_trace.h"

#include <cmath>
#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <sys/resource.h>

#include "base/error.h"
#include "support/files.h"

namespace zipage {
namespace {

class KvTraceTest : public testing::Test {
 protected:
  KvTraceTest() {
    record_.request_id = 77;
    record_.index = 2;
    record_.external_id = "chat-\xc3\xa9\n\0x";
    record_.sequence = ~uint64_t{0};
    record_.job_id = 300;
    record_.policy = KvPolicy::kGlobal;
    record_.layer = 7;
    record_.num_heads = 2;
    record_.length = 9;
    record_.keep = 3;
    record_.history = 6;
    record_.prompt_length = 5;
    record_.tokens = 100000;
    record_.positions = {0, 1, 99999, 3, 200, 70000};
    record_.scores = {0.5f, -1.25f, std::numeric_limits<float>::infinity(), 0.0f, 1e-20f, 3.0f};
  }
  std::string bytes() {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  void put(const std::string& text) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }

  const test::TempFolder folder_;
  const std::string path_ = folder_.file("trace.zpkv");
  KvTraceRecord record_;
};

TEST_F(KvTraceTest, RecordsComeBack) {
  {
    KvTraceWriter writer(path_);
    writer.write(record_);
    record_.layer = 8;
    writer.write(record_);
  }
  KvTraceReader reader(path_);
  KvTraceRecord got;
  for (const int layer : {7, 8}) {
    ASSERT_TRUE(reader.next(got));
    EXPECT_EQ(got.layer, layer);
    EXPECT_EQ(got.request_id, 77u);
    EXPECT_EQ(got.index, 2);
    EXPECT_EQ(got.external_id, record_.external_id);
    EXPECT_EQ(got.sequence, record_.sequence);
    EXPECT_EQ(got.job_id, 300u);
    EXPECT_EQ(got.policy, KvPolicy::kGlobal);
    EXPECT_EQ(got.length, 9);
    EXPECT_EQ(got.history, 6);
    EXPECT_EQ(got.prompt_length, 5);
    EXPECT_EQ(got.tokens, 100000);
    EXPECT_EQ(got.positions, record_.positions);
    for (size_t i = 0; i < got.scores.size(); ++i) {
      if (std::isinf(record_.scores[i])) {
        EXPECT_EQ(got.scores[i], record_.scores[i]);
      } else {
        EXPECT_NEAR(got.scores[i], record_.scores[i], std::fabs(record_.scores[i]) / 256);
      }
    }
  }
  EXPECT_FALSE(reader.next(got));
}

TEST_F(KvTraceTest, AnEmptyTraceHasNoRecords) {
  { KvTraceWriter writer(path_); }
  KvTraceReader reader(path_);
  KvTraceRecord got;
  EXPECT_FALSE(reader.next(got));
}

// Cut anywhere, or with any byte changed, the file is read or refused, never believed blindly.
TEST_F(KvTraceTest, BrokenFilesAreErrors) {
  {
    KvTraceWriter writer(path_);
    writer.write(record_);
  }
  const std::string whole = bytes();
  const auto read_all = [&] {
    KvTraceReader reader(path_);
    KvTraceRecord got;
    int count = 0;
    while (reader.next(got)) ++count;
    return count;
  };
  for (size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    if (size == 8) {
      EXPECT_EQ(read_all(), 0);
    } else {
      EXPECT_THROW(read_all(), Error) << size;
    }
  }
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string broken = whole;
      broken[at] = static_cast<char>(broken[at] ^ flip);
      put(broken);
      try {
        read_all();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), StatusCode::kDataLoss);
        EXPECT_THAT(error.what(), testing::HasSubstr(path_));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 24);
}

// Found by fuzzing: the same position twice.
TEST_F(KvTraceTest, PositionsMustAscend) {
  const auto file = [](char second_difference) {
    const std::string payload{7, 0, 0, 1, 1, 0, 0, 1, 9, 2, 0, 5, 9, 3, second_difference,
                              0, 0, 0, 0};
    return std::string("ZPKVTR1\n") + static_cast<char>(payload.size()) + std::string(3, '\0') +
           payload;
  };
  KvTraceRecord got;
  put(file(1));
  EXPECT_TRUE(KvTraceReader(path_).next(got));
  EXPECT_EQ(got.positions, (std::vector<int32_t>{2, 3}));
  put(file(0));
  try {
    KvTraceReader(path_).next(got);
    ADD_FAILURE() << "read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("positions do not ascend"));
  }
}

// Found by fuzzing: 2^31 heads that keep nothing took minutes to read.
TEST_F(KvTraceTest, HeadsThatKeepNothingAreRefused) {
  const std::string many_heads = "\xff\xff\xff\xff\x07";
  for (const auto& [heads, keep] : {std::pair{many_heads, 0}, {std::string(1, '\0'), 3}}) {
    const std::string payload = std::string{7, 0, 0, 1, 1, 0, 0} + heads + '\x09' +
                                static_cast<char>(keep) + std::string{0, 5, 9};
    put(std::string("ZPKVTR1\n") + static_cast<char>(payload.size()) + std::string(3, '\0') +
        payload);
    KvTraceRecord got;
    try {
      KvTraceReader(path_).next(got);
      ADD_FAILURE() << "read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), StatusCode::kDataLoss);
      EXPECT_THAT(error.what(), testing::HasSubstr("keeps nothing"));
    }
  }
}

// A disk that fills up leaves a trace of whole records.
TEST_F(KvTraceTest, AFullDiskIsAnErrorAndCutsNoRecord) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  int written = 0;
  std::string message;
  {
    KvTraceWriter writer(path_);
    const rlimit small{200, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    try {
      for (; written < 100; ++written) writer.write(record_);
    } catch (const Error& error) {
      message = error.what();
    }
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, testing::HasSubstr(path_ + ": the KV trace cannot be written: "));
  EXPECT_GT(written, 0);
  KvTraceReader reader(path_);
  KvTraceRecord got;
  int count = 0;
  while (reader.next(got)) ++count;
  EXPECT_EQ(count, written);
}

TEST_F(KvTraceTest, ThePublicReaderReturnsWhatTheOtherThrows) {
  EXPECT_EQ(KvTraceFile::open("/nonexistent/trace").status().code(), StatusCode::kNotFound);
  put("no trace");
  EXPECT_EQ(KvTraceFile::open(path_).status().code(), StatusCode::kDataLoss);
  {
    KvTraceWriter writer(path_);
    writer.write(record_);
  }
  const std::string whole = bytes();
  put(whole + whole.substr(8, 20));
  const auto file = KvTraceFile::open(path_);
  ASSERT_TRUE(file.ok());
  KvTraceRecord got;
  const auto first = file.value()->next(got);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first.value());
  EXPECT_EQ(got.positions, record_.positions);
  const auto second = file.value()->next(got);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(second.status().message(),
              testing::HasSubstr("byte " + std::to_string(whole.size())));
}

TEST_F(KvTraceTest, FilesThatCannotBeOpenedAreNamed) {
  EXPECT_THROW(KvTraceReader("/nonexistent/trace"), Error);
  EXPECT_THROW(KvTraceWriter("/nonexistent/trace"), Error);
}

}  // namespace
}  // namespace zipage
