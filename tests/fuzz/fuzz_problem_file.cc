// Any bytes are a file of problems, each with a prompt, or one Error.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "cli/problems.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zipage::fuzz::MemoryFile file(data, size);
  try {
    const auto problems = zipage::cli::read_problems(file.path());
    ZIPAGE_CHECK(!problems.empty());
    for (const zipage::cli::Problem& problem : problems) {
      ZIPAGE_CHECK(!problem.prompt.empty());
      ZIPAGE_CHECK(zipage::cli::is_right(problem, "\\boxed{" + problem.answer + "}", true));
    }
  } catch (const zipage::Error&) {
  }
  return 0;
}
