// Python's view of text: characters are code points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace zipage::jinja {

// Throws as using an undefined value does.
[[noreturn]] void fail_undefined(const Value& value);

int64_t num_characters(std::string_view text);
std::string_view characters(std::string_view text, int64_t begin, int64_t end);
// The same of a string value; at once for one of ASCII.
int64_t num_characters(const Value& text);
// The characters [begin, end), both in range.
std::string_view characters(const Value& text, int64_t begin, int64_t end);
std::vector<Value> split_characters(std::string_view text);

// Where `wanted` begins first, or last; npos if nowhere. In linear time, whatever the texts are.
size_t find_text(Budget& budget, std::string_view text, std::string_view wanted, size_t from = 0);
size_t find_last_text(Budget& budget, std::string_view text, std::string_view wanted);

// Takes characters in `set` off the ends; without a set, white space as str.isspace() sees it.
std::string_view strip(std::string_view text,
                       bool left,
                       bool right,
                       std::optional<std::string_view> set = std::nullopt);

bool is_space(char32_t code_point);  // str.isspace()
bool is_alpha(char32_t code_point);
bool is_digit(char32_t code_point);
bool is_numeric(char32_t code_point);
bool is_printable(char32_t code_point);

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string capitalize(std::string_view text);  // the first upper, the rest lower
std::string title(std::string_view text);       // str.title()
bool is_lower(std::string_view text);           // str.islower()
bool is_upper(std::string_view text);

std::string string_repr(std::string_view text);

// json.dumps' form of a string.
void append_json_string(std::string_view text, bool ensure_ascii, std::string& out);

}  // namespace zipage::jinja
