// What this process may use of the machine: memory and processors, as the kernel, the process's
// control groups (cgroup v1 or v2) and its CPU affinity allow. In a container the machine's own
// numbers are not what counts.
//
//   const MemoryState memory = memory_state();
//   const int threads = usable_cpus();
//
// Threads: any; nothing is kept between calls.
#pragma once

#include <cstddef>
#include <string>

namespace zipage {

// Where the kernel's files are. Tests give folders of their own.
struct MachineFiles {
  // meminfo, self/cgroup.
  std::string proc = "/proc";
  // The mounted cgroup hierarchies: v2 itself, or a folder a controller for v1.
  std::string cgroup = "/sys/fs/cgroup";
};

// Bytes of memory that there are for this process in all, and that it could still get. Page cache
// that the kernel gives back on demand counts as free.
struct MemoryState {
  size_t total_bytes = 0;
  size_t free_bytes = 0;
};
MemoryState memory_state(const MachineFiles& files = {});

// CPUs that this process may keep busy: those of its affinity mask, at most as many as its control
// groups' quota pays for (rounded down, at least 1). `affinity`: the number in the mask; 0: asks
// the kernel.
int usable_cpus(const MachineFiles& files = {}, int affinity = 0);

}  // namespace zipage
