// Normal forms, which are made of runs of the text, are those of the whole text.
#include "tokenizer/normalizer.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace zipage {
namespace {

std::string whole(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) throw std::runtime_error(utf8proc_errmsg(length));
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return text;
}

bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// A character that NFC leaves alone is none that another could take in.
TEST(Nfc, LeavesWhatNothingCanChange) {
  const auto form = make_unicode_form(UnicodeForm::kNfc);
  int num_left = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (is_surrogate(c)) continue;
    if (form->leaves(utf8(c))) {
      ++num_left;
      EXPECT_EQ(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class, 0)
          << static_cast<uint32_t>(c);
      EXPECT_EQ(whole(utf8(c), UTF8PROC_COMPOSE), utf8(c)) << static_cast<uint32_t>(c);
    }
    const std::string parts = whole(utf8(c), UTF8PROC_DECOMPOSE);
    for (size_t i = utf8_length(parts[0]); i < parts.size(); i += utf8_length(parts[i])) {
      EXPECT_FALSE(form->leaves(parts.substr(i, utf8_length(parts[i]))))
          << static_cast<uint32_t>(c);
    }
  }
  EXPECT_GT(num_left, 100000);
}

TEST(Normalizer, FormsAreThoseOfTheWholeText) {
  const struct {
    UnicodeForm form;
    int options;
  } kForms[] = {{UnicodeForm::kNfc, UTF8PROC_COMPOSE},
                {UnicodeForm::kNfd, UTF8PROC_DECOMPOSE},
                {UnicodeForm::kNfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                {UnicodeForm::kNfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  const char32_t starts[] = {0x20,   0xC0,   0x300,  0x3B1,  0x1100, 0x1161, 0x11A8,  0x1E00,
                             0x2126, 0x3040, 0x4E00, 0xAC00, 0xF900, 0xFF00, 0x1D157, 0x1F600};
  std::mt19937 random(3);
  for (const auto& form : kForms) {
    const auto normalizer = make_unicode_form(form.form);
    for (int i = 0; i < 5000; ++i) {
      std::string text;
      for (size_t count = random() % 12; count > 0; --count) {
        append_utf8(starts[random() % std::size(starts)] + random() % 64, text);
      }
      const std::string expected = whole(text, form.options);
      if (normalizer->leaves(text)) {
        EXPECT_EQ(expected, text);
      }
      std::string ours = text;
      normalizer->apply(ours);
      EXPECT_EQ(ours, expected) << testing::PrintToString(text);
    }
  }
}

}  // namespace
}  // namespace zipage
