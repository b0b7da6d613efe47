// The tokenizer, of an engine or by itself.
#include <cstdint>
#include <memory>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>
#include <vector>

#include "zipage/tokenizer.h"

#include "bindings.h"
#include "status.h"

namespace nb = nanobind;

namespace zipage::py {
namespace {

// Text from a vocabulary or broken off by a caller need not be whole UTF-8.
nb::object lenient_text(const std::string& bytes) {
  return nb::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

std::vector<int32_t> encode(const Tokenizer& tokenizer,
                            const std::string& text,
                            bool add_special_tokens,
                            bool parse_special_tokens) {
  return without_gil([&] {
    return tokenizer.encode(text, {add_special_tokens, parse_special_tokens});
  });
}

std::string apply_chat_template(const Tokenizer& tokenizer,
                                const std::string& messages_json,
                                bool add_generation_prompt,
                                bool continue_final_message,
                                const std::string& chat_template,
                                const std::string& template_kwargs,
                                const std::string& tools,
                                const std::string& content_format) {
  const ChatOptions options{add_generation_prompt,
                            continue_final_message,
                            chat_template,
                            template_kwargs,
                            tools,
                            value_or_raise(parse_chat_content_format(content_format))};
  return value_or_raise(
      without_gil([&] { return tokenizer.apply_chat_template(messages_json, options); }));
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def_static(
          "load",
          [](const std::string& path) {
            return std::shared_ptr<Tokenizer>(
                value_or_raise(without_gil([&] { return Tokenizer::load(path); })));
          },
          nb::arg("path"))
      .def("encode", &encode, nb::arg("text"), nb::arg("add_special_tokens"),
           nb::arg("parse_special_tokens"))
      .def(
          "decode",
          [](const Tokenizer& self, const std::vector<int32_t>& ids, bool skip_special_tokens) {
            return lenient_text(self.decode(ids, skip_special_tokens));
          },
          nb::arg("ids"), nb::arg("skip_special_tokens"))
      .def("apply_chat_template", &apply_chat_template, nb::arg("messages_json"),
           nb::arg("add_generation_prompt"), nb::arg("continue_final_message"),
           nb::arg("chat_template"), nb::arg("template_kwargs"), nb::arg("tools"),
           nb::arg("content_format"))
      .def("token_to_id", &Tokenizer::token_to_id, nb::arg("token"))
      .def(
          "id_to_token",
          [](const Tokenizer& self, int32_t id) { return lenient_text(self.id_to_token(id)); },
          nb::arg("id"))
      .def(
          "id_to_bytes",
          [](const Tokenizer& self, int32_t id) {
            const std::string bytes = self.id_to_bytes(id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("id"))
      .def("is_special", &Tokenizer::is_special, nb::arg("id"))
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("bos_id", &Tokenizer::bos_id)
      .def_prop_ro("eos_id", &Tokenizer::eos_id)
      .def_prop_ro("warnings", &Tokenizer::warnings)
      .def_prop_ro("has_chat_template", &Tokenizer::has_chat_template);
}

}  // namespace zipage::py
