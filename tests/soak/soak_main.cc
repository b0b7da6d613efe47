// zipage_soak: random loads on engines of a tiny model, one after the other, until the time is up.
//
//   zipage_soak [--minutes N | --seconds N] [--seed S] [--swap on|off|both] [--threads on|off|both]
//               [--episode SEED] [--expect-all]
//
// An episode that goes wrong prints its seed and ends the program with 1; --episode runs that one
// again. --expect-all: goes on for up to twelve times as long until some request was preempted,
// swapped, aborted and so on, and fails when none was.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "soak/episode.h"

namespace {

struct Choice {
  bool on = true, off = true;
  bool pick(uint64_t number) const { return on && (!off || number % 2 == 0); }
};

int usage(const std::string& wrong) {
  std::fprintf(stderr,
               "zipage_soak: %s\nusage: zipage_soak [--minutes N | --seconds N] [--seed S] "
               "[--swap on|off|both] [--threads on|off|both] [--episode SEED] [--expect-all]\n",
               wrong.c_str());
  return 2;
}

bool parse(const std::string& word, Choice& choice) {
  choice = {word != "off", word != "on"};
  return word == "on" || word == "off" || word == "both";
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 10;
  uint64_t seed = 1, only = 0;
  Choice swap, threads;
  bool expect_all = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--expect-all") {
      expect_all = true;
      continue;
    }
    if (++i == argc) return usage(flag + ": a value is missing, or the flag is unknown");
    const std::string value = argv[i];
    if (flag == "--minutes") {
      seconds = 60 * std::atof(value.c_str());
    } else if (flag == "--seconds") {
      seconds = std::atof(value.c_str());
    } else if (flag == "--seed") {
      seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (flag == "--episode") {
      only = std::strtoull(value.c_str(), nullptr, 10);
    } else if (flag == "--swap") {
      if (!parse(value, swap)) return usage("--swap: '" + value + "': expected on, off or both");
    } else if (flag == "--threads") {
      if (!parse(value, threads))
        return usage("--threads: '" + value + "': expected on, off or both");
    } else {
      return usage(flag + ": unknown");
    }
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const zipage::testing::TinyModel model;
  zipage::testing::SoakTotals totals;
  double next_line = 10;
  const auto goes_on = [&] {
    const double most = expect_all && !totals.missing(swap.on).empty() ? 12 * seconds : seconds;
    return elapsed() < most;
  };
  for (uint64_t number = 0; goes_on(); ++number) {
    zipage::testing::SoakSettings settings;
    settings.seed = only != 0 ? only : seed * 1000000 + number;
    settings.swap = swap.pick(settings.seed);
    settings.threads = threads.pick(settings.seed / 2);
    try {
      totals.add(run_episode(model, settings));
    } catch (const std::exception& error) {
      std::printf("FAILED: %s\n--episode %llu --swap %s --threads %s\n", error.what(),
                  static_cast<unsigned long long>(settings.seed), settings.swap ? "on" : "off",
                  settings.threads ? "on" : "off");
      return 1;
    }
    if (only != 0) break;
    if (elapsed() > next_line) {
      std::printf("%.0f s: %s\n", elapsed(), totals.line().c_str());
      std::fflush(stdout);
      next_line = elapsed() + 10;
    }
  }
  std::printf("passed, %.0f s: %s\n", elapsed(), totals.line().c_str());
  const std::string missing = totals.missing(swap.on);
  if (expect_all && !missing.empty()) {
    std::printf("FAILED: no %s\n", missing.c_str());
    return 1;
  }
  return 0;
}
