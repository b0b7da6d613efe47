#include "base/machine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sched.h>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <vector>

namespace zipage {
namespace {

// The first number of a file; none for "max" and for a file that is not there.
std::optional<double> read_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Sum of the values of two keys in a file of lines "key value".
double sum_of(const std::string& path, const std::string& first, const std::string& second) {
  std::ifstream file(path);
  std::string key;
  double value = 0, sum = 0;
  while (file >> key >> value) {
    if (key == first || key == second) sum += value;
  }
  return sum;
}

// Folders of the process's group and of all groups above it, up to the root of the hierarchy: each
// of them may set a limit. A path that does not lie below the mounted root (a container that sees
// the host's paths) leaves the root alone, which is the container's own group then.
std::vector<std::string> groups_up(const std::string& root, std::string path) {
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(root + path);
    path.erase(path.rfind('/'));
  }
  folders.push_back(root);
  return folders;
}

// The folders of a controller, v1; or of the one hierarchy of v2, for an empty name.
std::vector<std::string> group_folders(const MachineFiles& files, const std::string& controller) {
  std::ifstream list(files.proc + "/self/cgroup");
  std::string line;
  while (std::getline(list, line)) {
    // number:controller,controller:/path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controller.empty()) {
      if (names.empty()) return groups_up(files.cgroup, path);
      continue;
    }
    std::istringstream words(names);
    std::string name;
    while (std::getline(words, name, ',')) {
      if (name != controller) continue;
      std::vector<std::string> folders = groups_up(files.cgroup + "/" + names, path);
      // Often mounted under one of its names.
      const std::vector<std::string> alone = groups_up(files.cgroup + "/" + controller, path);
      folders.insert(folders.end(), alone.begin(), alone.end());
      return folders;
    }
  }
  return {};
}

struct Bounds {
  double total, free;
};

// `cached`: page cache in what is used.
void bound(Bounds& bounds, std::optional<double> limit, std::optional<double> used, double cached) {
  // v1 writes an absurdly large number where there is no limit.
  if (!limit || *limit >= 0x1p60) return;
  bounds.total = std::min(bounds.total, *limit);
  if (used)
    bounds.free = std::min(bounds.free, std::max(0.0, *limit - std::max(0.0, *used - cached)));
}

}  // namespace

MemoryState memory_state(const MachineFiles& files) {
  Bounds bounds{0, 0};
  std::ifstream file(files.proc + "/meminfo");
  std::string key, unit;
  double kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemTotal:") bounds.total = kib * 1024;
    if (key == "MemAvailable:") bounds.free = kib * 1024;
  }
  if (bounds.total == 0) {
    bounds.total =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    bounds.free = bounds.total;
  }
  for (const std::string& group : group_folders(files, "")) {
    bound(bounds, read_number(group + "/memory.max"), read_number(group + "/memory.current"),
          sum_of(group + "/memory.stat", "inactive_file", "active_file"));
  }
  for (const std::string& group : group_folders(files, "memory")) {
    bound(bounds, read_number(group + "/memory.limit_in_bytes"),
          read_number(group + "/memory.usage_in_bytes"),
          sum_of(group + "/memory.stat", "total_inactive_file", "total_active_file"));
  }
  bounds.free = std::min(bounds.free, bounds.total);
  return {static_cast<size_t>(bounds.total), static_cast<size_t>(bounds.free)};
}

int usable_cpus(const MachineFiles& files, int affinity) {
  if (affinity == 0) {
    // A mask larger than the kernel's, for machines of very many CPUs.
    constexpr int kMostCpus = 1 << 16;
    cpu_set_t* const mask = CPU_ALLOC(kMostCpus);
    const size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
    if (mask != nullptr && sched_getaffinity(0, bytes, mask) == 0)
      affinity = CPU_COUNT_S(bytes, mask);
    if (mask != nullptr) CPU_FREE(mask);
  }
  if (affinity <= 0) affinity = static_cast<int>(std::thread::hardware_concurrency());
  double cpus = affinity;
  for (const std::string& group : group_folders(files, "")) {
    // "quota period", or "max period".
    std::ifstream file(group + "/cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period && quota > 0 && period > 0) cpus = std::min(cpus, quota / period);
  }
  for (const std::string& group : group_folders(files, "cpu")) {
    const std::optional<double> quota = read_number(group + "/cpu.cfs_quota_us");
    const std::optional<double> period = read_number(group + "/cpu.cfs_period_us");
    if (quota && period && *quota > 0 && *period > 0) cpus = std::min(cpus, *quota / *period);
  }
  return std::max(1, static_cast<int>(std::floor(cpus)));
}

}  // namespace zipage
