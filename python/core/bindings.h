// The parts of the module zipage._core.
#pragma once

#include <nanobind/nanobind.h>

namespace zipage::py {

// Runs `call` without the GIL; what it returns is seen with it again.
template <typename Call>
auto without_gil(Call call) {
  const nanobind::gil_scoped_release release;
  return call();
}

void bind_options(nanobind::module_& module);    // EngineOptions, SamplingParams
void bind_tokenizer(nanobind::module_& module);  // Tokenizer
void bind_engine(nanobind::module_& module);     // Engine, Collector and what they return

}  // namespace zipage::py
