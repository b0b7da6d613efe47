#include "weights/dummy.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace zipage {
namespace {

TEST(DummySourceTest, ValuesAreTheSameEachTimeAndSpread) {
  const std::vector<DummyTensor> tensors = {
      {"a", {512, 64}, false}, {"b", {512, 64}, false}, {"n", {64}, true}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const DummySource one("x", tensors, dtype);
    const DummySource two("y", tensors, dtype);
    const HostTensor& a = one.get("a", {512, 64});
    EXPECT_EQ(a.dtype, dtype);
    EXPECT_EQ(std::memcmp(a.data, two.get("a", {512, 64}).data, static_cast<size_t>(a.bytes())), 0);
    EXPECT_NE(std::memcmp(a.data, one.get("b", {512, 64}).data, static_cast<size_t>(a.bytes())), 0);
    for (const float value : to_f32(one.get("n", {64}))) EXPECT_EQ(value, 1.0f);
    double sum = 0;
    double squares = 0;
    for (const float value : to_f32(a)) {
      ASSERT_LE(std::fabs(value), 0.0401f);
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const double count = 512 * 64;
    EXPECT_NEAR(sum / count, 0.0, 0.001);
    EXPECT_NEAR(std::sqrt(squares / count), 0.04 / std::sqrt(3.0), 0.001);
  }
}

// 16 GB of weights in the memory of one buffer; every byte can be read.
TEST(DummySourceTest, LargeTensorsRepeatOneBuffer) {
  constexpr int64_t kRows = 151936;
  const DummySource source("x", {{"a", {kRows, 4096}, false}, {"b", {kRows * 12, 4096}, false}},
                           DType::kBF16);
  const HostTensor& b = source.get("b", {kRows * 12, 4096});
  EXPECT_EQ(source.total_bytes(), kRows * 13 * 4096 * 2);
  const int64_t last = num_elements(b.shape) - 1;
  EXPECT_TRUE(std::isfinite(element_as_f32(b, last)));
  // A period of 4099 pages: elements a period apart are equal, neighbouring rows differ.
  const int64_t period = 4099 * 4096 / 2;
  EXPECT_EQ(element_as_f32(b, 5), element_as_f32(b, 5 + period));
  EXPECT_NE(std::memcmp(b.data, b.data + 4096 * 2, 4096 * 2), 0);
}

}  // namespace
}  // namespace zipage
