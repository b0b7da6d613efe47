// Packed types by hand, and all bit patterns against PyPI `gguf`.
#include "tensor/dequantize.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include "support/errors.h"
#include "support/files.h"
#include "support/judge.h"
#include "weights/gguf.h"

namespace zipage {
namespace {

std::vector<float> values_of(DType dtype, const std::string& bytes) {
  const auto blocks = static_cast<int64_t>(bytes.size()) / packed_block_bytes(dtype);
  HostTensor tensor{"t",
                    dtype,
                    {blocks * packed_block_elements(dtype)},
                    reinterpret_cast<const std::byte*>(bytes.data())};
  std::vector<float> out(static_cast<size_t>(num_elements(tensor.shape)));
  dequantize(tensor, out);
  return out;
}

std::string half(float value) { return test::bytes_of(f32_to_f16(value)); }

TEST(DequantizeTest, PlainTypes) {
  EXPECT_EQ(values_of(DType::kF32, test::bytes_of(1.25f)), std::vector<float>{1.25f});
  EXPECT_EQ(values_of(DType::kF16, half(-2.5f)), std::vector<float>{-2.5f});
  EXPECT_EQ(values_of(DType::kBF16, test::bytes_of(f32_to_bf16(3.0f))), std::vector<float>{3.0f});
  const std::string integer = test::bytes_of<int32_t>(1);
  test::expect_error(StatusCode::kUnimplemented, {"'t'", "i32"},
                     [&] { values_of(DType::kI32, integer); });
}

TEST(DequantizeTest, Q8_0IsScaleTimesInteger) {
  std::string block = half(0.5f);
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i * 8 - 128);
  const std::vector<float> x = values_of(DType::kQ8_0, block);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(x[static_cast<size_t>(i)], 0.5f * static_cast<float>(i * 8 - 128));
}

// Byte i holds element i in its low half and element i + 16 in its high half.
TEST(DequantizeTest, FourBitTypesHoldLowHalvesFirst) {
  std::string run;
  for (int i = 0; i < 16; ++i) run += static_cast<char>(i | (15 - i) << 4);
  const std::vector<float> q4_0 = values_of(DType::kQ4_0, half(2.0f) + run);
  const std::vector<float> q4_1 = values_of(DType::kQ4_1, half(2.0f) + half(-1.0f) + run);
  for (int i = 0; i < 16; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(q4_0[at], 2.0f * static_cast<float>(i - 8));
    EXPECT_EQ(q4_0[at + 16], 2.0f * static_cast<float>(7 - i));
    EXPECT_EQ(q4_1[at], 2.0f * static_cast<float>(i) - 1.0f);
    EXPECT_EQ(q4_1[at + 16], 2.0f * static_cast<float>(15 - i) - 1.0f);
  }
}

// The fifth bit of elements 1 and 31.
TEST(DequantizeTest, FiveBitTypesHoldTheFifthBitsApart) {
  const std::string fifth = test::bytes_of<uint32_t>(1u << 1 | 1u << 31);
  const std::string run(16, '\x21');  // low halves 1, high halves 2
  const std::vector<float> q5_0 = values_of(DType::kQ5_0, half(1.0f) + fifth + run);
  const std::vector<float> q5_1 = values_of(DType::kQ5_1, half(1.0f) + half(0.5f) + fifth + run);
  EXPECT_EQ(q5_0[0], -15.0f);
  EXPECT_EQ(q5_0[1], 1.0f);
  EXPECT_EQ(q5_0[16], -14.0f);
  EXPECT_EQ(q5_0[31], 2.0f);
  EXPECT_EQ(q5_1[0], 1.5f);
  EXPECT_EQ(q5_1[1], 17.5f);
  EXPECT_EQ(q5_1[16], 2.5f);
  EXPECT_EQ(q5_1[31], 18.5f);
}

TEST(DequantizeTest, Q6_KHasAScaleForSixteenElements) {
  std::string block(128, '\0');    // low halves 0
  block += std::string(64, '\2');  // upper bits: 2 for the first 32 of a half, 0 for the rest
  for (int i = 0; i < 16; ++i) block += static_cast<char>(i - 8);
  block += half(0.25f);
  const std::vector<float> x = values_of(DType::kQ6_K, block);
  for (int i = 0; i < 256; ++i) {
    const int q = i % 128 < 32 ? 2 * 16 - 32 : -32;
    EXPECT_EQ(x[static_cast<size_t>(i)],
              0.25f * static_cast<float>(i / 16 - 8) * static_cast<float>(q))
        << i;
  }
}

TEST(DequantizeJudgeTest, EveryPackedTypeEqualsPypiGguf) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  test::TempFolder folder;
  ASSERT_EQ(test::run_judge("weights/gguf_judge.py", folder), "");
  const auto source = GgufSource::open(folder.file("random.gguf"));
  ASSERT_EQ(source->names().size(), 11u);
  for (const std::string& name : source->names()) {
    SCOPED_TRACE(name);
    const HostTensor& tensor = source->get(name, {7, 512});
    EXPECT_EQ(to_string(tensor.dtype), name);
    const std::vector<float> expected = test::read_values<float>(folder.file(name + ".f32"));
    ASSERT_EQ(expected.size(), 7u * 512u);
    std::vector<float> actual(expected.size());
    dequantize(tensor, actual);
    for (size_t i = 0; i < actual.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(actual[i])) << i;
      } else {
        ASSERT_EQ(actual[i], expected[i]) << i;
      }
    }
  }
  // What gguf wrote as metadata reads back.
  const GgufFile& file = source->file();
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_int("test.u32"), 7);
  EXPECT_EQ(file.get_double("test.f32", 0, 1), 0.5);
  EXPECT_EQ(file.find_bool("test.bool"), true);
  EXPECT_EQ(file.get_strings("test.strings"), (std::vector<std::string_view>{"a", "\xc3\xa9", ""}));
  EXPECT_EQ(file.find_ints("test.ints"), (std::vector<int64_t>{1, -2, 3}));
}

}  // namespace
}  // namespace zipage
