#include "base/gguf_file.h"

#include <gtest/gtest.h>
#include <string>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::bytes_of;
using test::expect_error;
using test::GgufBuilder;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

GgufBuilder all_types() {
  GgufBuilder file;
  file.raw_key("u8", 0, bytes_of<uint8_t>(200)).raw_key("i8", 1, bytes_of<int8_t>(-2));
  file.raw_key("u16", 2, bytes_of<uint16_t>(40000)).raw_key("i16", 3, bytes_of<int16_t>(-3));
  file.u32("u32", 4000000000u).raw_key("i32", 5, bytes_of<int32_t>(-4)).f32("f32", 0.5f);
  file.raw_key("yes", 7, bytes_of<uint8_t>(1)).raw_key("no", 7, bytes_of<uint8_t>(0));
  file.string("text", "hello").strings("texts", {"a", "", "ccc"});
  file.raw_key("u64", 10, bytes_of<uint64_t>(uint64_t{1} << 40));
  file.raw_key("huge", 10, bytes_of<uint64_t>(~uint64_t{0}));
  file.raw_key("i64", 11, bytes_of<int64_t>(-5)).raw_key("f64", 12, bytes_of<double>(0.25));
  file.raw_key(
      "ints", 9,
      bytes_of<uint32_t>(3) + bytes_of<uint64_t>(2) + bytes_of<int16_t>(-7) + bytes_of<int16_t>(8));
  file.raw_key("floats", 9, bytes_of<uint32_t>(6) + bytes_of<uint64_t>(1) + bytes_of(1.5f));
  file.raw_key("empty", 9, bytes_of<uint32_t>(6) + bytes_of<uint64_t>(0));
  file.raw_key("flags", 9, bytes_of<uint32_t>(7) + bytes_of<uint64_t>(2) + std::string("\1\0", 2));
  file.tensor("t", {3, 2}, 0, std::string(24, 'x')).tensor("u", {2}, 1, "abcd");
  return file;
}

TEST(GgufFileTest, EveryTypeOfValueIsRead) {
  const std::string bytes = all_types().build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), 19u);
  EXPECT_EQ(file.get_int("u8"), 200);
  EXPECT_EQ(file.find_int("i8", -10), -2);
  EXPECT_EQ(file.get_int("u16"), 40000);
  EXPECT_EQ(file.find_int("i16", -10), -3);
  EXPECT_EQ(file.get_int("u32"), 4000000000);
  EXPECT_EQ(file.find_int("i32", -10), -4);
  EXPECT_EQ(file.get_int("u64"), int64_t{1} << 40);
  EXPECT_EQ(file.find_int("i64", -10), -5);
  EXPECT_EQ(file.get_double("f32", 0, 1), 0.5);
  EXPECT_EQ(file.get_double("f64", 0, 1), 0.25);
  EXPECT_EQ(file.get_double("u8", 0, 1000), 200.0);
  EXPECT_EQ(file.find_bool("yes"), true);
  EXPECT_EQ(file.find_bool("no"), false);
  EXPECT_EQ(file.get_string("text"), "hello");
  EXPECT_EQ(file.get_strings("texts"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(file.find_ints("ints"), (std::vector<int64_t>{-7, 8}));
  EXPECT_EQ(file.find_floats("floats"), std::vector<float>{1.5f});
  EXPECT_EQ(file.find_floats("empty"), std::vector<float>{});
  EXPECT_EQ(file.find_int("absent"), std::nullopt);
  EXPECT_EQ(file.find_strings("absent"), std::nullopt);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[1].name, "u");
  EXPECT_EQ(file.tensors()[0].extents, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(file.tensors()[1].offset, 32u);
  EXPECT_EQ(file.data().size(), 36u);
  EXPECT_EQ(file.data()[32], std::byte{'a'});
}

TEST(GgufFileTest, Version2AndAnotherAlignmentAreRead) {
  GgufBuilder builder;
  builder.version = 2;
  builder.alignment = 64;
  builder.u32("general.alignment", 64).tensor("a", {1}, 24, "x").tensor("b", {1}, 24, "y");
  const std::string bytes = builder.build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
  EXPECT_EQ(file.alignment(), 64u);
  EXPECT_EQ(file.tensors()[1].offset, 64u);
  EXPECT_EQ(file.data()[64], std::byte{'y'});
}

TEST(GgufFileTest, AValueOfAnotherTypeOrRangeIsNamed) {
  const std::string bytes = all_types().build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
  const auto expect = [](const std::vector<std::string>& words, auto action) {
    expect_error(StatusCode::kDataLoss, words, action);
  };
  expect({"x.gguf", "'absent'", "missing"}, [&] { file.get_int("absent"); });
  expect({"x.gguf", "'absent'", "missing"}, [&] { file.get_string("absent"); });
  expect({"x.gguf", "'absent'", "missing"}, [&] { file.get_double("absent", 0, 1); });
  expect({"x.gguf", "'absent'", "missing"}, [&] { file.get_strings("absent"); });
  expect({"'text'", "string", "integer"}, [&] { file.get_int("text"); });
  expect({"'f32'", "f32", "integer"}, [&] { file.get_int("f32"); });
  expect({"'huge'", "u64", "2^63"}, [&] { file.get_int("huge"); });
  expect({"'u8'", "200", "1 to 100"}, [&] { file.get_int("u8", 1, 100); });
  expect({"'i8'", "-2", "0 to"}, [&] { file.get_int("i8"); });
  expect({"'f32'", "0.5", "1 to 2"}, [&] { file.get_double("f32", 1, 2); });
  expect({"'ints'", "array of i16", "integer"}, [&] { file.get_int("ints"); });
  expect({"'u8'", "u8", "bool"}, [&] { file.find_bool("u8"); });
  expect({"'u8'", "u8", "string"}, [&] { file.get_string("u8"); });
  expect({"'ints'", "i16", "array of strings"}, [&] { file.get_strings("ints"); });
  expect({"'texts'", "string", "integers"}, [&] { file.find_ints("texts"); });
  expect({"'flags'", "bool", "numbers"}, [&] { file.find_floats("flags"); });
  expect({"'text'", "number"}, [&] { file.find_double("text", 0, 1); });
}

TEST(GgufFileTest, NanIsOutOfEveryRange) {
  GgufBuilder builder;
  builder.f32("x", std::numeric_limits<float>::quiet_NaN());
  const std::string bytes = builder.build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
  expect_error(StatusCode::kDataLoss, {"'x'", "nan"}, [&] { file.find_double("x", -1e30, 1e30); });
}

struct Broken {
  const char* name;
  std::string file;
  std::vector<std::string> words;
  StatusCode code = StatusCode::kDataLoss;
};

template <typename Change>
std::string changed(Change change) {
  GgufBuilder builder;
  change(builder);
  return builder.build();
}

std::vector<Broken> broken_files() {
  constexpr auto kUnimplemented = StatusCode::kUnimplemented;
  const auto array = [](uint32_t type, uint64_t count) { return bytes_of(type) + bytes_of(count); };
  return {
      {"empty", "", {"magic", "ends"}},
      {"another magic", changed([](auto& f) { f.magic = "GGML"; }), {"'GGUF'"}},
      {"version 1",
       changed([](auto& f) { f.version = 1; }),
       {"version 0x1", "2 and 3"},
       kUnimplemented},
      {"version 4",
       changed([](auto& f) { f.version = 4; }),
       {"version 0x4", "2 and 3"},
       kUnimplemented},
      {"big-endian",
       changed([](auto& f) { f.version = 0x03000000; }),
       {"big-endian"},
       kUnimplemented},
      {"too many keys", changed([](auto& f) { f.num_keys = 1; }), {"1 metadata keys"}},
      {"2^62 keys",
       changed([](auto& f) { f.num_keys = int64_t{1} << 62; }),
       {"4611686018427387904"}},
      {"too many tensors", changed([](auto& f) { f.num_tensors = 1000; }), {"1000 tensors"}},
      {"2^62 tensors",
       changed([](auto& f) { f.num_tensors = int64_t{1} << 62; }),
       {"4611686018427387904"}},
      {"empty key", changed([](auto& f) { f.u32("", 1); }), {"key 0", "0 bytes"}},
      {"long key", changed([](auto& f) { f.u32(std::string(70000, 'k'), 1); }), {"key 0", "70000"}},
      {"unknown type",
       changed([](auto& f) { f.raw_key("k", 13, std::string(8, 0)); }),
       {"'k'", "13"}},
      {"unknown element type",
       changed([&](auto& f) { f.raw_key("k", 9, array(99, 0)); }),
       {"'k'", "99"}},
      {"array of arrays",
       changed([&](auto& f) { f.raw_key("k", 9, array(9, 1)); }),
       {"'k'", "array of arrays"},
       kUnimplemented},
      {"long array",
       changed([&](auto& f) { f.raw_key("k", 9, array(4, 1000)); }),
       {"1000 array elements"}},
      {"array of 2^61",
       changed([&](auto& f) { f.raw_key("k", 9, array(10, uint64_t{1} << 61)); }),
       {"2305843009213693952"}},
      {"many strings",
       changed([&](auto& f) { f.raw_key("k", 9, array(8, 1000)); }),
       {"1000 strings"}},
      {"long string",
       changed([](auto& f) { f.raw_key("k", 8, bytes_of<uint64_t>(1000) + "abc"); }),
       {"'k'", "1000"}},
      {"string of 2^64",
       changed([](auto& f) { f.raw_key("k", 8, bytes_of(~uint64_t{0}) + "abc"); }),
       {"'k'", "18446744073709551615"}},
      {"bool of 2", changed([](auto& f) { f.raw_key("k", 7, "\2"); }), {"'k'", "2"}},
      {"key twice", changed([](auto& f) { f.u32("k", 1).u32("k", 1); }), {"'k'", "twice"}},
      {"alignment 0",
       changed([](auto& f) { f.u32("general.alignment", 0); }),
       {"general.alignment", "0"}},
      {"alignment 24",
       changed([](auto& f) { f.u32("general.alignment", 24); }),
       {"general.alignment", "24", "power of two"}},
      {"alignment as text",
       changed([](auto& f) { f.string("general.alignment", "32"); }),
       {"general.alignment", "string"}},
      {"alignment of 2^31",
       changed([](auto& f) { f.u32("general.alignment", 1u << 31); }),
       {"general.alignment", "2147483648"}},
      {"tensor without name",
       changed([](auto& f) { f.tensor("", {1}, 0, "abcd"); }),
       {"tensor 0", "0 bytes"}},
      {"long tensor name",
       changed([](auto& f) { f.tensor(std::string(65, 't'), {1}, 0, "abcd"); }),
       {"tensor 0", "65", "64"}},
      {"tensor twice",
       changed([](auto& f) { f.tensor("t", {1}, 0, "abcd").tensor("t", {1}, 0, "abcd"); }),
       {"'t'", "twice"}},
      {"no dimension",
       changed([](auto& f) { f.tensor("t", {}, 0, std::string(64, 0)); }),
       {"'t'", "0 dimensions"}},
      {"five dimensions",
       changed([](auto& f) {
         f.tensor("t", {1, 1, 1, 1, 1}, 0, "abcd");
       }),
       {"'t'", "5 dimensions"}},
      {"extent 0",
       changed([](auto& f) {
         f.tensor("t", {4, 0}, 0, "abcd");
       }),
       {"'t'", "extent 0", "dimension 1"}},
      {"negative extent",
       changed([](auto& f) { f.tensor("t", {-1}, 0, "abcd"); }),
       {"'t'", "18446744073709551615"}},
      {"crooked offset",
       changed([](auto& f) { f.raw_tensor("t", {1}, 0, 4); }),
       {"'t'", "offset 4", "32"}},
      {"no data",
       changed([](auto& f) { f.raw_tensor("t", {1}, 0, 0); }).substr(0, 60),
       {"padding"}},
  };
}

TEST(GgufFileTest, EveryKindOfBrokenFileIsOneClearError) {
  for (const Broken& broken : broken_files()) {
    SCOPED_TRACE(broken.name);
    std::vector<std::string> words = broken.words;
    words.push_back("x.gguf");
    expect_error(broken.code, words, [&] { GgufFile::parse(as_bytes(broken.file), "x.gguf"); });
  }
}

TEST(GgufFileTest, NoPrefixOfTheHeaderIsAccepted) {
  const std::string good = all_types().build();
  for (size_t size = 0; size < good.size() - 36; ++size) {
    const std::string prefix = good.substr(0, size);
    EXPECT_THROW(GgufFile::parse(as_bytes(prefix), "x"), Error) << size;
  }
}

TEST(GgufFileTest, AChangedByteIsReadOrRefusedButNeverACrash) {
  const std::string good = all_types().build();
  int refused = 0;
  for (size_t i = 0; i < good.size() - 36; ++i) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[i] = value;
      try {
        GgufFile::parse(as_bytes(bad), "x");
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace zipage
