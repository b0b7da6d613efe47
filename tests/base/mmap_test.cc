#include "base/mmap.h"

#include <gtest/gtest.h>
#include <utility>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

using test::expect_error;

TEST(MappedFileTest, HoldsTheBytesOfTheFileAcrossAMove) {
  test::TempFolder folder;
  const std::string path = folder.write("f", std::string("ab\0c", 4));
  MappedFile file = MappedFile::open(path);
  const std::byte* data = file.data().data();
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.data().data(), data);
  EXPECT_EQ(moved.size(), 4u);
  EXPECT_EQ(moved.path(), path);
  EXPECT_EQ(moved.data()[3], std::byte{'c'});
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(read_text_file(path), std::string("ab\0c", 4));
}

TEST(MappedFileTest, AnEmptyFileIsEmpty) {
  test::TempFolder folder;
  const std::string path = folder.write("f", "");
  EXPECT_TRUE(MappedFile::open(path).data().empty());
  EXPECT_EQ(read_text_file(path), "");
}

TEST(MappedFileTest, ErrorsNameThePath) {
  test::TempFolder folder;
  const std::string path = folder.write("f", "12345");
  const std::string absent = folder.file("absent");
  expect_error(StatusCode::kNotFound, {absent}, [&] { MappedFile::open(absent); });
  expect_error(StatusCode::kNotFound, {absent}, [&] { read_text_file(absent); });
  expect_error(StatusCode::kNotFound, {path}, [&] { MappedFile::open(path + "/x"); });
  expect_error(StatusCode::kInvalidArgument, {folder.path(), "directory"},
               [&] { MappedFile::open(folder.path()); });
  expect_error(StatusCode::kInvalidArgument, {path, "5 bytes", "4"},
               [&] { read_text_file(path, 4); });
  expect_error(StatusCode::kInvalidArgument, {"/dev/null"}, [&] { MappedFile::open("/dev/null"); });
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
