// Statuses of the engine as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include "zipage/status.h"

namespace zipage::py {

// Adds EngineError to the module.
void bind_errors(nanobind::module_& module);

// Raises what fits the code: ValueError, FileNotFoundError, NotImplementedError, else EngineError.
// Needs the GIL. Returns when the status is ok.
void raise_if_failed(const Status& status);

template <typename T>
T value_or_raise(Result<T> result) {
  raise_if_failed(result.status());
  return std::move(result).value();
}

}  // namespace zipage::py
