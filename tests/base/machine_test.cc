// Memory and CPUs of a process, read from made-up files of the kernel.
#include "base/machine.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>

namespace zipage {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    std::filesystem::remove_all(root_);
    write("proc/meminfo",
          "MemTotal:       67108864 kB\nMemFree:         1048576 kB\nMemAvailable:   33554432 kB\n"
          "HugePages_Total:       0\n");
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  MachineFiles files() const { return {(root_ / "proc").string(), (root_ / "cgroup").string()}; }
  MemoryState memory() const { return memory_state(files()); }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) /
      ("machine-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(MachineTest, WithoutGroupsTheMachineCounts) {
  EXPECT_EQ(memory().total_bytes, 64 * kGiB);
  EXPECT_EQ(memory().free_bytes, 32 * kGiB);
  EXPECT_EQ(usable_cpus(files(), 12), 12);
}

TEST_F(MachineTest, V2TheTightestGroupOnTheWayUpCounts) {
  write("proc/self/cgroup", "0::/app.slice/zipage.service\n");
  write("cgroup/app.slice/zipage.service/memory.max", "max\n");
  write("cgroup/app.slice/zipage.service/memory.current", "1073741824\n");
  write("cgroup/app.slice/zipage.service/cpu.max", "450000 100000\n");
  write("cgroup/app.slice/memory.max", "8589934592\n");
  write("cgroup/app.slice/memory.current", "4294967296\n");
  write("cgroup/app.slice/memory.stat",
        "anon 100\ninactive_file 1073741824\nactive_file 536870912\nslab 5\n");
  write("cgroup/app.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(memory().total_bytes, 8 * kGiB);
  // 8 - (4 - 1.5)
  EXPECT_EQ(memory().free_bytes, 8 * kGiB - 4 * kGiB + 3 * kGiB / 2);
  EXPECT_EQ(usable_cpus(files(), 64), 4);
  EXPECT_EQ(usable_cpus(files(), 3), 3);
}

TEST_F(MachineTest, V2InAContainerTheRootIsItsGroup) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "2147483648\n");
  write("cgroup/memory.current", "536870912\n");
  write("cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(memory().total_bytes, 2 * kGiB);
  EXPECT_EQ(memory().free_bytes, 3 * kGiB / 2);
  // Half a CPU is one thread.
  EXPECT_EQ(usable_cpus(files(), 8), 1);
}

TEST_F(MachineTest, V1HasAFolderForEachController) {
  write("proc/self/cgroup",
        "12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n1:name=systemd:/docker/abc\n");
  // Without a group namespace the path is the host's, and the mounted root the container's group.
  write("cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  write("cgroup/memory/memory.usage_in_bytes", "2147483648\n");
  write("cgroup/memory/memory.stat", "total_inactive_file 1073741824\ntotal_active_file 0\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(memory().total_bytes, 4 * kGiB);
  EXPECT_EQ(memory().free_bytes, 3 * kGiB);
  EXPECT_EQ(usable_cpus(files(), 16), 2);
}

TEST_F(MachineTest, V1WithoutLimits) {
  write("proc/self/cgroup", "3:cpu:/\n5:memory:/user\n");
  write("cgroup/memory/user/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/user/memory.usage_in_bytes", "2147483648\n");
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(memory().total_bytes, 64 * kGiB);
  EXPECT_EQ(memory().free_bytes, 32 * kGiB);
  EXPECT_EQ(usable_cpus(files(), 16), 16);
}

TEST_F(MachineTest, AGroupThatIsFullHasNothingLeft) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "1073741824\n");
  write("cgroup/memory.current", "1073745920\n");
  EXPECT_EQ(memory().free_bytes, 0u);
}

TEST(MachineOfThisTest, OneCpuInTheMaskIsOneThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), CPU_COUNT(&before));
  EXPECT_GT(memory_state().total_bytes, 0u);
}

}  // namespace
}  // namespace zipage
