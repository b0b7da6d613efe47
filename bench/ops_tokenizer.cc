// How fast text becomes token ids, on one core. There is no limit of the machine to compare with
// but the copy of the text, which is printed beside. Time is the thread's CPU time: on a machine
// that others use too, the wall clock would count their work. A tokenizer remembers words: "first"
// is the first text after loading, the other numbers are medians of later runs.
// usage: bench_ops_tokenizer TEXT_FILE MODEL...   (MODEL: a folder, or a GGUF file)
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "zipage/tokenizer.h"

namespace {

constexpr size_t kShortBytes = 2000;
constexpr size_t kRuns = 15;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Megabytes a second of CPU time: the median of the runs.
double megabytes_per_second(size_t bytes, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (size_t i = 0; i < kRuns; ++i) {
    const double begin = cpu_seconds();
    work();
    seconds.push_back(cpu_seconds() - begin);
  }
  const auto median = seconds.begin() + kRuns / 2;
  std::nth_element(seconds.begin(), median, seconds.end());
  return static_cast<double>(bytes) / *median / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s TEXT_FILE MODEL...\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) {
    std::fprintf(stderr, "%s: cannot be read, or is empty\n", argv[1]);
    return 1;
  }
  std::string copy;
  const double copied = megabytes_per_second(text.size(), [&] {
    copy.assign(text);
    copy.shrink_to_fit();
  });
  std::printf("%s: %zu bytes, copied at %.0f MB/s; all per second of CPU time\n", argv[1],
              text.size(), copied);
  for (int i = 2; i < argc; ++i) {
    const auto tokenizer = zipage::Tokenizer::load(argv[i]);
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
      return 1;
    }
    const zipage::Tokenizer& t = *tokenizer.value();
    const double begin = cpu_seconds();
    const size_t tokens = t.encode(text).size();
    const double first = static_cast<double>(text.size()) / (cpu_seconds() - begin) / 1e6;
    const double whole = megabytes_per_second(text.size(), [&] { t.encode(text); });
    const double short_texts = megabytes_per_second(text.size(), [&] {
      for (size_t at = 0; at < text.size(); at += kShortBytes)
        t.encode(std::string_view(text).substr(at, kShortBytes));
    });
    std::printf("%6.1f MB/s, texts of %zu bytes %6.1f, first %6.1f, %5.2f bytes a token  %s\n",
                whole, kShortBytes, short_texts, first,
                static_cast<double>(text.size()) / static_cast<double>(tokens), argv[i]);
    std::fflush(stdout);
  }
}
