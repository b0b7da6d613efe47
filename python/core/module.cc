#include "bindings.h"
#include "status.h"

NB_MODULE(_core, module) {
  module.doc() = "The engine of Zipage. Use the package zipage, not this module.";
  zipage::py::bind_errors(module);
  zipage::py::bind_options(module);
  zipage::py::bind_tokenizer(module);
  zipage::py::bind_engine(module);
}
