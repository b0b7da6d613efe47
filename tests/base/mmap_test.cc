#include "base/mmap.h"

#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <utility>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::expect_error;

TEST(FileImageTest, HoldsTheBytesOfTheFileAcrossAMove) {
  test::TempFolder folder;
  const std::string path = folder.write("f", std::string("ab\0c", 4));
  FileImage file = FileImage::open(path);
  const std::byte* data = file.data().data();
  file.fetch(data, 4);
  FileImage moved = std::move(file);
  EXPECT_EQ(moved.data().data(), data);
  EXPECT_EQ(moved.size(), 4u);
  EXPECT_EQ(moved.path(), path);
  EXPECT_EQ(moved.data()[3], std::byte{'c'});
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(read_text_file(path), std::string("ab\0c", 4));
}

TEST(FileImageTest, AnEmptyFileIsEmpty) {
  test::TempFolder folder;
  const std::string path = folder.write("f", "");
  EXPECT_TRUE(FileImage::open(path).data().empty());
  EXPECT_EQ(read_text_file(path), "");
}

TEST(FileImageTest, RangesComeAndGo) {
  test::TempFolder folder;
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const FileImage file = FileImage::open(folder.write("f", bytes));
  const std::byte* data = file.data().data();
  // In the middle of pages; then all of it, again after a drop.
  for (const auto& [from, size] : {std::pair(5'000, 10'000), std::pair(0, 100'000)}) {
    for (int round = 0; round < 2; ++round) {
      file.fetch(data + from, static_cast<size_t>(size));
      EXPECT_EQ(std::memcmp(data + from, bytes.data() + from, static_cast<size_t>(size)), 0);
      file.drop(data + from, static_cast<size_t>(size));
    }
  }
  // What lies elsewhere is left alone.
  const std::byte other{'x'};
  file.fetch(&other, 1);
  file.fetch(data + 99'999, 2);
  file.drop(&other, 1);
  EXPECT_EQ(other, std::byte{'x'});
}

TEST(FileImageTest, AFileThatIsCutWhileItIsReadIsAnError) {
  test::TempFolder folder;
  const std::string path = folder.write("f", std::string(100'000, 'a'));
  const FileImage file = FileImage::open(path);
  std::filesystem::resize_file(path, 50'000);
  const std::byte* data = file.data().data();
  file.fetch(data, 50'000);
  EXPECT_EQ(data[49'999], std::byte{'a'});
  expect_error(StatusCode::kDataLoss, {path, "50000", "100000", "cut"},
               [&] { file.fetch(data + 40'000, 20'000); });
  expect_error(StatusCode::kDataLoss, {path, "cut"}, [&] { file.fetch(data + 90'000, 10); });
}

TEST(FileImageTest, ErrorsNameThePath) {
  test::TempFolder folder;
  const std::string path = folder.write("f", "12345");
  const std::string absent = folder.file("absent");
  expect_error(StatusCode::kNotFound, {absent}, [&] { FileImage::open(absent); });
  expect_error(StatusCode::kNotFound, {absent}, [&] { read_text_file(absent); });
  expect_error(StatusCode::kNotFound, {path}, [&] { FileImage::open(path + "/x"); });
  expect_error(StatusCode::kInvalidArgument, {folder.path(), "directory"},
               [&] { FileImage::open(folder.path()); });
  expect_error(StatusCode::kInvalidArgument, {path, "5 bytes", "4"},
               [&] { read_text_file(path, 4); });
  expect_error(StatusCode::kInvalidArgument, {"/dev/null"}, [&] { FileImage::open("/dev/null"); });
}

TEST(PathTest, PathsAreJoinedWithOneSlash) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_TRUE(is_directory("/"));
  EXPECT_FALSE(is_regular_file("/"));
  EXPECT_FALSE(is_directory("/nowhere/at/all"));
}

}  // namespace
}  // namespace zipage
