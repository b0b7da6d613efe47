// RoPE of every kind of scaling against transformers.
#include <cmath>
#include <gtest/gtest.h>
#include <string>

#include "model/config.h"
#include "support/judge.h"
#include "weights/json.h"

namespace zipage {
namespace {

TEST(RopeJudgeTest, FrequenciesEqualTransformers) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  test::TempFolder folder;
  ASSERT_EQ(test::run_judge("model/rope_judge.py", folder), "");
  for (const JsonValue& judged : JsonValue::read(folder.file("rope.json")).elements()) {
    for (const char* form : {"old", "new"}) {
      SCOPED_TRACE(judged.at("name").as_string() + " " + form);
      const ModelConfig config = parse_model_config(judged.at(form));
      const int64_t positions = judged.at("max_positions").as_int(1, 1 << 20);
      const std::vector<double> frequencies = rope_frequencies(config, positions);
      const std::vector<JsonValue> expected = judged.at("frequencies").elements();
      ASSERT_EQ(frequencies.size(), expected.size());
      ASSERT_EQ(2 * frequencies.size(), static_cast<size_t>(config.rope.rotary_dim));
      // transformers computes in f32: an exponent of up to ln(theta) is rounded to 2^-24 of itself,
      // and so are the power, its inverse and the scaling.
      const double tolerance = (std::log(config.rope.theta) + 8) * 0x1p-24;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double judge = expected[i].as_double(0, 1);
        EXPECT_NEAR(frequencies[i] / judge, 1.0, tolerance) << i;
      }
      EXPECT_NEAR(config.rope.attention_factor, judged.at("attention_factor").as_double(0, 10),
                  1e-12);
      // The table holds what the frequencies say, factor included.
      const std::vector<float> table = rope_table(config, positions);
      const size_t dim = 2 * frequencies.size();
      for (const size_t position : {size_t{0}, size_t{1}, static_cast<size_t>(positions) - 1}) {
        for (size_t i = 0; i < frequencies.size(); ++i) {
          const double angle = static_cast<double>(position) * frequencies[i];
          ASSERT_EQ(table[position * dim + i],
                    static_cast<float>(std::cos(angle) * config.rope.attention_factor));
          ASSERT_EQ(table[position * dim + dim / 2 + i],
                    static_cast<float>(std::sin(angle) * config.rope.attention_factor));
        }
      }
    }
  }
}

}  // namespace
}  // namespace zipage
