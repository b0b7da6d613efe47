#include "weights/json.h"

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/files.h"

namespace zipage {
namespace {

JsonValue parse(std::string_view text) { return JsonValue::parse(text, "x.json"); }

template <typename Action>
void expect(const std::vector<std::string>& words, Action&& action) {
  std::vector<std::string> all = words;
  all.push_back("x.json");
  test::expect_error(StatusCode::kDataLoss, all, action);
}

TEST(JsonTest, FieldsAreReadByType) {
  const JsonValue json = parse(R"( {"i":3,"f":2.0,"big":18446744073709551615,"s":"é","b":true,)"
                               R"("n":null,"a":[1,{"k":2}],"o":{"x":{"y":1}}} )");
  EXPECT_EQ(json.at("i").as_int(0, 3), 3);
  EXPECT_EQ(json.at("f").as_int(0, 3), 2);
  EXPECT_EQ(json.at("f").as_double(0, 3), 2.0);
  EXPECT_EQ(json.at("i").as_double(0, 3), 3.0);
  EXPECT_EQ(json.at("big").as_double(0, 1e20), 18446744073709551615.0);
  EXPECT_EQ(json.at("s").as_string(), "é");
  EXPECT_TRUE(json.at("b").as_bool());
  EXPECT_FALSE(json.find("n").has_value());
  EXPECT_FALSE(json.find("absent").has_value());
  EXPECT_EQ(json.at("a").elements()[1].at("k").field(), "a[1].k");
  EXPECT_EQ(json.at("o").at("x").at("y").field(), "o.x.y");
  EXPECT_EQ(json.members().size(), 8u);
  EXPECT_TRUE(json.members()[5].second.is_null());
}

TEST(JsonTest, AWrongTypeOrRangeNamesFieldAndValue) {
  const JsonValue json =
      parse(R"({"i":3,"f":2.5,"s":"text","big":18446744073709551615,"huge":1e300})");
  expect({"'i'", "3", "4 to 5"}, [&] { json.at("i").as_int(4, 5); });
  expect({"'i'", "3", "4 to 5"}, [&] { json.at("i").as_double(4, 5); });
  expect({"'f'", "2.5", "integer"}, [&] { json.at("f").as_int(0, 9); });
  expect({"'big'", "18446744073709551615", "integer"},
         [&] { json.at("big").as_int(0, INT64_MAX); });
  expect({"'huge'", "integer"}, [&] { json.at("huge").as_int(0, INT64_MAX); });
  expect({"'s'", "\"text\"", "integer"}, [&] { json.at("s").as_int(0, 9); });
  expect({"'s'", "\"text\"", "number"}, [&] { json.at("s").as_double(0, 9); });
  expect({"'s'", "true or false"}, [&] { json.at("s").as_bool(); });
  expect({"'i'", "string"}, [&] { json.at("i").as_string(); });
  expect({"'i'", "object"}, [&] { json.at("i").find("x"); });
  expect({"'i'", "object"}, [&] { json.at("i").members(); });
  expect({"'i'", "array"}, [&] { json.at("i").elements(); });
  expect({"'x'", "missing"}, [&] { json.at("x"); });
  expect({"document", "[1,2]", "object"}, [&] { parse("[1,2]").at("x"); });
}

TEST(JsonTest, WhatIsNoJsonIsRefused) {
  for (const char* text :
       {"", " ", "{", "{}}", "{} x", "{\"a\":}", "{'a':1}", "{\"a\":NaN}", "{\"a\":Infinity}",
        "{\"a\":-}", "{\"a\":01}", "{\"a\":1,}", "\"\\ud800\"", "\"a", "nul", "// x\n{}"}) {
    SCOPED_TRACE(text);
    expect({"not valid JSON"}, [&] { parse(text); });
  }
  expect({"not valid JSON"}, [&] { parse(std::string(100000, '[')); });
  expect({"not valid JSON"}, [&] { parse(std::string_view("{}\0", 3)); });
}

TEST(JsonTest, ANumberBeyondDoubleIsOutOfRange) {
  expect({"'a'"}, [&] { parse(R"({"a":1e999})").at("a").as_double(-1e300, 1e300); });
}

TEST(JsonTest, AKeyGivenTwiceIsRefusedAtAnyDepth) {
  expect({"'a'", "twice"}, [] { parse(R"({"a":1,"a":2})"); });
  expect({"'c'", "twice"}, [] { parse(R"({"a":[{"b":1,"c":1,"c":1}]})"); });
  expect({"'ab'", "twice"}, [] { parse(R"({"ab":1,"\u0061b":1})"); });
  EXPECT_NO_THROW(parse(R"({"a":{"a":1},"b":[{"a":1},{"a":1}]})"));
}

TEST(JsonTest, LongValuesAreShortenedInMessages) {
  const JsonValue json = parse(R"({"a":")" + std::string(1000, 'x') + "\"}");
  expect({"..."}, [&] { json.at("a").as_bool(); });
}

TEST(JsonTest, AFileIsNamedByItsPath) {
  test::TempFolder folder;
  const std::string path = folder.write("c.json", R"({"a":1})");
  EXPECT_EQ(JsonValue::read(path).at("a").as_int(0, 9), 1);
  test::expect_error(StatusCode::kNotFound, {folder.file("d.json")},
                     [&] { JsonValue::read(folder.file("d.json")); });
}

}  // namespace
}  // namespace zipage
