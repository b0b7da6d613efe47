#include "weights/gguf.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::expect_error;
using test::GgufBuilder;
using test::TempFolder;

TEST(GgufSourceTest, TensorsOfEveryTypeHaveTheirShapeAndSize) {
  struct Known {
    uint32_t number;
    DType dtype;
    int64_t elements, bytes;
  };
  const std::vector<Known> types = {
      {0, DType::kF32, 1, 4},       {1, DType::kF16, 1, 2},      {30, DType::kBF16, 1, 2},
      {8, DType::kQ8_0, 32, 34},    {2, DType::kQ4_0, 32, 18},   {3, DType::kQ4_1, 32, 20},
      {6, DType::kQ5_0, 32, 22},    {7, DType::kQ5_1, 32, 24},   {12, DType::kQ4_K, 256, 144},
      {13, DType::kQ5_K, 256, 176}, {14, DType::kQ6_K, 256, 210}};
  GgufBuilder builder;
  for (const Known& type : types) {
    builder.tensor(
        to_string(type.dtype), {2 * type.elements, 3}, type.number,
        std::string(static_cast<size_t>(6 * type.bytes), static_cast<char>(type.number)));
  }
  TempFolder folder;
  const auto source = open_weights(folder.write("m.gguf", builder.build()));
  EXPECT_EQ(source->naming(), WeightNaming::kGguf);
  for (const Known& type : types) {
    const HostTensor& tensor = source->get(to_string(type.dtype), {3, 2 * type.elements});
    EXPECT_EQ(tensor.dtype, type.dtype);
    EXPECT_EQ(tensor.bytes(), 6 * type.bytes);
    EXPECT_EQ(std::to_integer<uint32_t>(tensor.data[0]), type.number);
    EXPECT_EQ(std::to_integer<uint32_t>(tensor.data[tensor.bytes() - 1]), type.number);
  }
}

TEST(GgufSourceTest, ATypeWithoutUseIsAnErrorOnlyWhenAskedFor) {
  GgufBuilder builder;
  builder.tensor("a", {256}, 10, std::string(84, 0)).tensor("b", {1}, 0, "abcd");
  TempFolder folder;
  const std::string path = folder.write("m.gguf", builder.build());
  const auto source = GgufSource::open(path);
  EXPECT_NE(source->find("b"), nullptr);
  expect_error(StatusCode::kUnimplemented, {path, "'a'", "Q2_K", "Q4_K, Q5_K, Q6_K"},
               [&] { source->find("a"); });
}

GgufBuilder part(uint32_t number, uint32_t count, std::string_view tensor) {
  GgufBuilder builder;
  builder.raw_key("split.no", 2, test::bytes_of(static_cast<uint16_t>(number)));
  builder.raw_key("split.count", 2, test::bytes_of(static_cast<uint16_t>(count)));
  builder.raw_key("split.tensors.count", 5, test::bytes_of<int32_t>(2));
  builder.tensor(tensor, {1}, 0, "abcd");
  return builder;
}

TEST(GgufSourceTest, AModelMayComeInParts) {
  TempFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part(0, 2, "a").build());
  const std::string second = folder.file("m-00002-of-00002.gguf");
  expect_error(StatusCode::kNotFound, {second}, [&] { GgufSource::open(first); });
  folder.write("m-00002-of-00002.gguf", part(1, 2, "b").build());
  EXPECT_EQ(GgufSource::open(first)->names(), (std::vector<std::string>{"a", "b"}));
  expect_error(StatusCode::kInvalidArgument, {second, "2 parts", "-00001-of-00002.gguf"},
               [&] { GgufSource::open(second); });
  folder.write("m-00002-of-00002.gguf", part(0, 2, "b").build());
  expect_error(StatusCode::kDataLoss, {second, "'split.no'", "0", "1"},
               [&] { GgufSource::open(first); });
  folder.write("m-00002-of-00002.gguf", part(1, 2, "a").build());
  expect_error(StatusCode::kDataLoss, {"'a'", first, second}, [&] { GgufSource::open(first); });
  GgufBuilder more = part(1, 2, "b");
  more.tensor("c", {1}, 0, "abcd");
  folder.write("m-00002-of-00002.gguf", more.build());
  expect_error(StatusCode::kDataLoss, {first, "'split.tensors.count'", "2", "3"},
               [&] { GgufSource::open(first); });
}

TEST(GgufSourceTest, ReleasedTensorsCanBeFetchedAgain) {
  GgufBuilder builder;
  builder.tensor("a", {100000}, 0, std::string(400000, 'x')).tensor("b", {1}, 0, "abcd");
  TempFolder folder;
  const auto source = GgufSource::open(folder.write("m.gguf", builder.build()));
  const HostTensor& a = source->get("a", {100000});
  EXPECT_EQ(a.data[200000], std::byte{'x'});
  source->release(a);
  source->fetch(a);
  EXPECT_EQ(a.data[200000], std::byte{'x'});
  EXPECT_EQ(a.data[0], std::byte{'x'});
  EXPECT_EQ(source->get("b", {1}).data[0], std::byte{'a'});
}

TEST(GgufSourceTest, BrokenTensorsAreNamed) {
  TempFolder folder;
  const auto expect = [&](const char* what, const std::vector<std::string>& words, auto change) {
    SCOPED_TRACE(what);
    GgufBuilder builder;
    change(builder);
    const std::string path = folder.write("m.gguf", builder.build());
    std::vector<std::string> all = words;
    all.push_back(path);
    expect_error(StatusCode::kDataLoss, all, [&] { GgufSource::open(path); });
  };
  expect("unknown type", {"'t'", "type 99", "Q4_K"},
         [](auto& f) { f.tensor("t", {1}, 99, "abcd"); });
  expect("type that was removed", {"'t'", "type 4"},
         [](auto& f) { f.tensor("t", {32}, 4, "abcd"); });
  expect("offset past the file", {"'t'", "offset 64", "4 bytes"},
         [](auto& f) { f.tensor("s", {1}, 0, "abcd").raw_tensor("t", {1}, 0, 64); });
  expect("offset near 2^64", {"'t'", "18446744073709551584"},
         [](auto& f) { f.tensor("s", {1}, 0, "abcd").raw_tensor("t", {1}, 0, ~uint64_t{0} - 31); });
  expect("data cut off", {"'t'", "8 bytes", "4 bytes"},
         [](auto& f) { f.tensor("t", {2}, 0, "abcd"); });
  expect("rows of half a block", {"'t'", "48", "q4_0", "32"}, [](auto& f) {
    f.tensor("t", {48, 2}, 2, std::string(54, 0));
  });
  expect("more than 2^63 bytes", {"'t'", "2^63"}, [](auto& f) {
    f.tensor("t", {int64_t{1} << 40, int64_t{1} << 40}, 0, "abcd");
  });
  expect("overlap", {"'a'", "'b'", "overlap"},
         [](auto& f) { f.tensor("a", {16}, 0, std::string(64, 0)).raw_tensor("b", {2}, 0, 32); });
  expect("same bytes twice", {"'a'", "'b'", "overlap"},
         [](auto& f) { f.tensor("a", {1}, 0, "abcd").raw_tensor("b", {1}, 0, 0); });
}

// Another process shortens the file while the model is loaded.
TEST(GgufTest, AFileThatIsCutAfterItWasOpenedIsAnError) {
  test::TempFolder folder;
  test::GgufBuilder builder;
  builder.string("general.architecture", "llama");
  builder.tensor("a", {25000}, 0, std::string(100'000, 'x'));
  builder.tensor("b", {25000}, 0, std::string(100'000, 'y'));
  const std::string path = folder.write("m.gguf", builder.build());
  const auto source = GgufSource::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1000);
  EXPECT_EQ(source->get("a", {25000}).data[99'999], std::byte{'x'});
  EXPECT_EQ(source->file().get_string("general.architecture"), "llama");
  test::expect_error(StatusCode::kDataLoss, {path, "cut"}, [&] { source->get("b", {25000}); });
}

}  // namespace
}  // namespace zipage
