#include "weights/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::expect_error;
using test::safetensors;
using test::TempFolder;

const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
    R"("none":{"dtype":"F16","shape":[0,4],"data_offsets":[22,22]}})";
const std::string kData(22, '\x3f');

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(SafetensorsTest, TensorsPointIntoTheFile) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors(kHeader, kData));
  const auto source = SafetensorsSource::open(folder.path());
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b", "none"}));
  EXPECT_EQ(source->total_bytes(), 22);
  const HostTensor& a = source->get("a", {2, 2});
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.name, "a");
  float value;
  std::memcpy(&value, a.data + 12, 4);
  EXPECT_FLOAT_EQ(value, 0.74705881f);  // 0x3f3f3f3f
  EXPECT_EQ(source->get("b", {3}).dtype, DType::kBF16);
  EXPECT_EQ(source->get("none", {0, 4}).bytes(), 0);
  EXPECT_EQ(source->find("c"), nullptr);
}

TEST(SafetensorsTest, DataIsAlignedEvenWhereTheFileIsNot) {
  // The header is one byte longer than a multiple of 8.
  std::string header = R"({"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})";
  header.resize((header.size() + 7) / 8 * 8 + 1, ' ');
  TempFolder folder;
  folder.write("model.safetensors",
               safetensors(header, std::string(8, '\1') + std::string(8, '\2')));
  const auto source = SafetensorsSource::open(folder.path());
  const HostTensor& a = source->get("a", {2});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 8, 0u);
  EXPECT_EQ(std::to_integer<int>(a.data[7]), 1);
  EXPECT_EQ(std::to_integer<int>(a.data[8]), 2);
}

TEST(SafetensorsTest, AMissingTensorAndAWrongShapeAreNamed) {
  TempFolder folder;
  const std::string path = folder.write("model.safetensors", safetensors(kHeader, kData));
  const auto source = SafetensorsSource::open(folder.path());
  expect_error(StatusCode::kNotFound, {folder.path(), "'c'", "[2, 3]"}, [&] {
    source->get("c", {2, 3});
  });
  expect_error(StatusCode::kDataLoss, {path, "'a'", "[2, 2]", "[4]"},
               [&] { source->get("a", {4}); });
}

TEST(SafetensorsTest, ATypeWithoutUseIsAnErrorOnlyWhenAskedFor) {
  TempFolder folder;
  const std::string path = folder.write(
      "model.safetensors",
      safetensors(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", std::string(8, 0)));
  const auto source = SafetensorsSource::open(folder.path());
  expect_error(StatusCode::kUnimplemented, {path, "'a'", "F64"}, [&] { source->find("a"); });
}

// Newer types of the format, in tensors that the model need not use.
TEST(SafetensorsTest, ATypeThatIsNotKnownIsAnErrorOnlyWhenAskedFor) {
  TempFolder folder;
  const std::string path = folder.write(
      "model.safetensors",
      safetensors(R"({"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]},"__metadata__":null})",
                  std::string(4, 0)));
  const auto source = SafetensorsSource::open(folder.path());
  EXPECT_TRUE(source->contains("a"));
  EXPECT_FALSE(source->contains("b"));
  expect_error(StatusCode::kUnimplemented, {path, "'a'", "F4"}, [&] { source->find("a"); });
}

// Another process shortens the file while the model is loaded.
TEST(SafetensorsTest, AFileThatIsCutAfterItWasOpenedIsAnError) {
  TempFolder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[25000],"data_offsets":[0,100000]},)"
                       R"("b":{"dtype":"F32","shape":[25000],"data_offsets":[100000,200000]}})";
  // Aligned: nothing has to be copied when the file is opened.
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string path =
      folder.write("model.safetensors", safetensors(header, std::string(200'000, 'x')));
  const auto source = SafetensorsSource::open(folder.path());
  std::filesystem::resize_file(path, 150'000);
  EXPECT_EQ(source->get("a", {25000}).data[99'999], std::byte{'x'});
  EXPECT_EQ(source->require("b", {25000}).shape, (Shape{25000}));
  expect_error(StatusCode::kDataLoss, {path, "150000", "cut"}, [&] { source->get("b", {25000}); });
  expect_error(StatusCode::kDataLoss, {path, "150000", "cut"}, [&] { source->find("b"); });
}

TEST(SafetensorsTest, AReleasedTensorCanBeFetchedAgain) {
  TempFolder folder;
  folder.write("model.safetensors",
               safetensors(R"({"a":{"dtype":"U8","shape":[100000],"data_offsets":[0,100000]}})",
                           std::string(100'000, 'x')));
  const auto source = SafetensorsSource::open(folder.path());
  const HostTensor& a = source->get("a", {100000});
  source->release(a);
  source->fetch(a);
  EXPECT_EQ(std::count(a.data, a.data + 100'000, std::byte{'x'}), 100'000);
}

struct Broken {
  const char* name;
  std::string file;
  std::vector<std::string> words;
};

// A file with one tensor entry.
std::string one(const std::string& entry, size_t data_bytes) {
  return safetensors(R"({"a":)" + entry + "}", std::string(data_bytes, '\0'));
}

std::vector<Broken> broken_files() {
  const std::string good = safetensors(kHeader, kData);
  const std::string f32 = R"({"dtype":"F32",)";
  return {
      {"empty", "", {"0 bytes"}},
      {"seven bytes", good.substr(0, 7), {"7 bytes"}},
      {"header cut off", good.substr(0, 40), {"header of", "40"}},
      {"header of 2^63 bytes",
       test::bytes_of<uint64_t>(uint64_t{1} << 63) + "{}",
       {"9223372036854775808"}},
      {"header of no bytes", safetensors("", ""), {"'{'"}},
      {"header without brace", safetensors("[1]", ""), {"'{'"}},
      {"header cut inside", safetensors(kHeader.substr(0, 60), kData), {"not valid JSON"}},
      {"text after the header", safetensors(kHeader + "x", kData), {"not valid JSON"}},
      {"header of NaN", safetensors(R"({"a":NaN})", ""), {"not valid JSON"}},
      {"no UTF-8", safetensors("{\"\xff\xfe\":1}", ""), {"not valid JSON"}},
      {"nested too deep", safetensors(R"({"a":)" + std::string(5000, '['), ""), {"not valid JSON"}},
      {"tensor twice",
       safetensors(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                   R"("a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                   "xx"),
       {"'a'", "twice"}},
      {"entry is no object", one("[1]", 0), {"'a'", "[1]", "object"}},
      {"no dtype", one(R"({"shape":[1],"data_offsets":[0,4]})", 4), {"'a.dtype'", "missing"}},
      {"dtype is a number",
       one(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})", 4),
       {"'a.dtype'", "4"}},
      {"no shape", one(f32 + R"("data_offsets":[0,4]})", 4), {"'a.shape'", "missing"}},
      {"shape is a number",
       one(f32 + R"("shape":1,"data_offsets":[0,4]})", 4),
       {"'a.shape'", "array"}},
      {"negative extent",
       one(f32 + R"("shape":[-1],"data_offsets":[0,4]})", 4),
       {"'a.shape[0]'", "-1"}},
      {"half an extent",
       one(f32 + R"("shape":[1.5],"data_offsets":[0,4]})", 4),
       {"'a.shape[0]'", "1.5"}},
      {"extent of 2^64",
       one(f32 + R"("shape":[18446744073709551615],"data_offsets":[0,4]})", 4),
       {"'a.shape[0]'", "18446744073709551615"}},
      {"shape overflows",
       one(f32 + R"("shape":[16777216,16777216,16777216],"data_offsets":[0,4]})", 4),
       {"'a'", "16777216", "2^63"}},
      {"no offsets", one(f32 + R"("shape":[1]})", 4), {"'a.data_offsets'", "missing"}},
      {"three offsets",
       one(f32 + R"("shape":[1],"data_offsets":[0,4,4]})", 4),
       {"'a.data_offsets'", "[0,4,4]"}},
      {"negative offset",
       one(f32 + R"("shape":[1],"data_offsets":[-4,0]})", 4),
       {"'a.data_offsets[0]'", "-4"}},
      {"offsets reversed", one(f32 + R"("shape":[1],"data_offsets":[4,0]})", 4), {"'a'", "[4, 0]"}},
      {"offset past the end",
       one(f32 + R"("shape":[1],"data_offsets":[4,8]})", 4),
       {"'a'", "[4, 8]", "4 bytes"}},
      {"shape and offsets differ",
       one(f32 + R"("shape":[2],"data_offsets":[0,4]})", 4),
       {"'a'", "4 bytes", "[2]", "8"}},
      {"hole before", one(f32 + R"("shape":[1],"data_offsets":[4,8]})", 8), {"'a'", "hole", "4"}},
      {"overlap",
       safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                   "abcdef"),
       {"'b'", "overlap", "2", "4"}},
      {"file too long", good + "x", {"22", "23"}},
      {"file too short", good.substr(0, good.size() - 1), {"'b'", "[16, 22]", "21"}},
      {"metadata is no text",
       safetensors(R"({"__metadata__":{"x":1}})", ""),
       {"'__metadata__.x'", "string"}},
  };
}

TEST(SafetensorsTest, EveryKindOfBrokenFileIsOneClearError) {
  for (const Broken& broken : broken_files()) {
    SCOPED_TRACE(broken.name);
    std::vector<std::string> words = broken.words;
    words.push_back("x/model.safetensors");
    expect_error(StatusCode::kDataLoss, words,
                 [&] { parse_safetensors(as_bytes(broken.file), "x/model.safetensors"); });
  }
}

TEST(SafetensorsTest, NoPrefixOfAFileIsAccepted) {
  const std::string good = safetensors(kHeader, kData);
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string prefix = good.substr(0, size);
    EXPECT_THROW(parse_safetensors(as_bytes(prefix), "x"), Error) << size;
  }
}

class ShardsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("one.safetensors", one(R"({"dtype":"I8","shape":[1],"data_offsets":[0,1]})", 1));
    folder_.write("two.safetensors",
                  safetensors(R"({"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "xy"));
  }
  void index(const std::string& weight_map) {
    folder_.write("model.safetensors.index.json",
                  R"({"metadata":{},"weight_map":)" + weight_map + "}");
  }
  void expect(StatusCode code, std::vector<std::string> words) {
    words.push_back(folder_.path());
    expect_error(code, words, [&] { SafetensorsSource::open(folder_.path()); });
  }
  TempFolder folder_;
};

TEST_F(ShardsTest, TensorsOfAllShardsAreFound) {
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const auto source = SafetensorsSource::open(folder_.path());
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(source->get("b", {2}).data[1], std::byte{'y'});
}

TEST_F(ShardsTest, BrokenIndexesAreNamed) {
  index(R"({"a":"one.safetensors","a":"two.safetensors"})");
  expect(StatusCode::kDataLoss, {"'a'", "twice"});
  index(R"({"a":"../one.safetensors"})");
  expect(StatusCode::kDataLoss, {"'weight_map.a'", "../one.safetensors"});
  index(R"({"a":1})");
  expect(StatusCode::kDataLoss, {"'weight_map.a'", "string"});
  index("{}");
  expect(StatusCode::kDataLoss, {"'weight_map'", "at least one"});
  index("null");
  expect(StatusCode::kDataLoss, {"'weight_map'", "missing"});
  folder_.write("model.safetensors.index.json", "{");
  expect(StatusCode::kDataLoss, {"not valid JSON", "model.safetensors.index.json"});
}

TEST_F(ShardsTest, WhatTheIndexNamesMayBeAbsentUntilTheModelNeedsIt) {
  index(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors",)"
        R"("d":"three.safetensors"})");
  const auto source = SafetensorsSource::open(folder_.path());
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(source->find("c"), nullptr);
  expect_error(StatusCode::kNotFound, {"'c'", "index.json", "'two.safetensors'", "lacks it"},
               [&] { source->get("c", {1}); });
  expect_error(StatusCode::kNotFound, {"'d'", "index.json", "'three.safetensors'", "no such file"},
               [&] { source->get("d", {1}); });
}

TEST_F(ShardsTest, ATensorThatTheIndexDoesNotNameIsThere) {
  index(R"({"a":"one.safetensors","c":"two.safetensors"})");
  const auto source = SafetensorsSource::open(folder_.path());
  EXPECT_EQ(source->get("b", {2}).data[0], std::byte{'x'});
}

TEST_F(ShardsTest, NoShardAtAllIsAnErrorAtOnce) {
  index(R"({"b":"three.safetensors"})");
  expect(StatusCode::kNotFound, {"'b'", "'three.safetensors'", "no such file"});
}

TEST_F(ShardsTest, OfATensorInTwoShardsTheIndexChooses) {
  const std::string both = R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                           R"("d":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})";
  folder_.write("three.safetensors", safetensors(both, "pq"));
  for (const auto& [place, byte] : {std::pair("one", '\0'), std::pair("three", 'p')}) {
    index(R"({"a":")" + std::string(place) +
          R"(.safetensors","e":"one.safetensors","d":"three.safetensors"})");
    const auto source = SafetensorsSource::open(folder_.path());
    EXPECT_EQ(source->get("a", {1}).data[0], static_cast<std::byte>(byte)) << place;
    EXPECT_EQ(source->get("d", {1}).data[0], std::byte{'q'});
  }
}

TEST_F(ShardsTest, FoldersWithoutWeights) {
  expect(StatusCode::kNotFound, {"model.safetensors", "model.safetensors.index.json"});
  const std::string nowhere = folder_.file("nowhere");
  expect_error(StatusCode::kNotFound, {nowhere}, [&] { open_weights(nowhere); });
  expect_error(StatusCode::kNotFound, {"one.safetensors"},
               [&] { open_weights(folder_.file("one.safetensors"), "safetensors"); });
  expect_error(StatusCode::kInvalidArgument, {"'zip'", "safetensors, gguf"},
               [&] { open_weights(folder_.path(), "zip"); });
}

}  // namespace
}  // namespace zipage
