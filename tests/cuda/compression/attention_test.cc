// Attention score and peak update of bf16 keys, by the kernel for Hopper and by the one for every
// device: lengths around every boundary, more units than blocks at a time, jobs longer than what a
// cluster holds.
#include "cuda/compression/world.h"

namespace zipage::test {
namespace {

struct Case {
  const char* name;
  int head_dim, heads, group, block_size, window, layers;
  std::vector<int> lengths;
};

std::vector<Case> cases() {
  return {
      {"ragged",
       128,
       2,
       4,
       256,
       16,
       3,
       {2048, 1, 2047, 17, 15, 33, 511, 1793, 32, 300, 1024, 1025, 1536, 1537, 600, 16}},
      {"one", 128, 1, 4, 256, 16, 1, {1720}},
      {"longer_than_a_cluster", 128, 2, 4, 256, 16, 2, {2049, 2304, 300, 4097, 4608, 2560, 2303}},
      {"long_prompt", 128, 1, 4, 256, 16, 1, {9000}},
      {"d64_g2_w5_b32", 64, 3, 2, 32, 5, 2, {700, 2048, 3, 40, 5, 2200, 31}},
      {"d64_g1_w16_b64", 64, 4, 1, 64, 16, 5, {128, 64, 1000, 1, 1500}},
      {"d128_g3_w8_b512", 128, 2, 3, 512, 8, 2, {1024, 513, 512, 9, 2600}},
  };
}

class CudaAttention : public testing::TestWithParam<int> {
 protected:
  CudaAttention() : of(cases()[static_cast<size_t>(GetParam())]), world(shape_of(of)) {
    args.kv = &world.kv;
    args.num_layers = of.layers;
    args.scale = 1.0f / std::sqrt(static_cast<float>(of.head_dim));
  }
  static Shape shape_of(const Case& c) {
    Shape shape;
    shape.head_dim = c.head_dim, shape.num_kv_heads = c.heads, shape.group = c.group;
    shape.block_size = c.block_size, shape.window = c.window, shape.num_layers = c.layers;
    for (const int n : c.lengths) shape.jobs.push_back({n, 1, 0, 0, 1, n - std::min(n, 16)});
    return shape;
  }
  // Without the means to make tensor maps the kernel for every device runs.
  CudaContext context(bool cluster) const {
    CudaContext made = world.context;
    if (!cluster) made.encode_tensor_map = nullptr;
    return made;
  }
  // Jobs [first, first + count), each with the F it had before.
  PeakUpdateBatch updates(int first, int count) {
    std::vector<int32_t> previous, lengths, slots;
    PeakUpdateBatch batch;
    for (int j = first; j < first + count; ++j) {
      const JobShape& job = world.shape.jobs[static_cast<size_t>(j)];
      lengths.push_back(job.length), previous.push_back(job.previous);
      slots.push_back(world.slots[static_cast<size_t>(j)]);
      batch.max_length = std::max(batch.max_length, job.length);
    }
    batch.num_updates = count;
    batch.slots = world.add_table(slots);
    batch.lengths = world.add_table(lengths);
    batch.previous_lengths = world.add_table(previous);
    batch.block_table_stride = world.blocks_per_job;
    batch.block_tables =
        world.batch.block_tables + static_cast<std::ptrdiff_t>(first) * world.blocks_per_job;
    return batch;
  }
  void reset() {
    for (int l = 0; l < of.layers; ++l) {
      world.device_scores[static_cast<size_t>(l)]->upload(world.scores[static_cast<size_t>(l)]);
    }
  }
  void update(const PeakUpdateBatch& batch, bool cluster, float* workspace) {
    PeakUpdateArgs a{};
    a.batch = &batch, a.kv = &world.kv, a.num_layers = of.layers, a.scale = args.scale;
    a.half_life = 128, a.workspace = workspace, a.capacity = world.capacity;
    launch_peak_update(a, context(cluster), nullptr);
    ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  }

  Case of;
  World world;
  AttentionScoreArgs args{};
};

TEST_P(CudaAttention, ScoreEqualsTheOracle) {
  for (const bool cluster : {true, false}) {
    DeviceArray<float> score(world.scratch_size()), workspace(world.workspace_floats());
    args.batch = &world.batch;
    args.capacity = world.capacity;
    args.score = score.data();
    args.workspace = workspace.data();
    launch_attention_score(args, context(cluster), nullptr);
    ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
    const std::vector<float> got = score.download();
    world.for_each_unit([&](int j, int l, int h) {
      if (HasFailure()) return;
      const oracle::Row want =
          oracle::attention_score(world.window_of(j, l, h), world.keys_of(j, l, h), args.scale);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[world.row(j, l, h) + i], want[i], 2e-4 * (want[i] + 1e-6))
            << "cluster " << cluster << " job " << j << " layer " << l << " head " << h << " entry "
            << i << " of " << want.size();
      }
      uint32_t bits;
      std::memcpy(&bits, &got[world.row(j, l, h) + want.size()], 4);
      EXPECT_EQ(bits, 0xC5C5C5C5u) << "job " << j << " layer " << l << " head " << h;
    });
  }
}

TEST_P(CudaAttention, PeakUpdateEqualsTheOracle) {
  DeviceArray<float> workspace(world.workspace_floats());
  const PeakUpdateBatch batch = updates(0, world.num_jobs);
  for (const bool cluster : {true, false}) {
    reset();
    update(batch, cluster, workspace.data());
    ASSERT_NO_FATAL_FAILURE(world.check_peaks(args.scale, cluster ? "cluster" : "every device"));
  }
}

// The same bits alone as in a batch, and every time.
TEST_P(CudaAttention, PeakUpdateDoesNotDependOnTheBatch) {
  DeviceArray<float> workspace(world.workspace_floats());
  const auto scores = [&] {
    std::vector<std::vector<float>> all;
    for (int l = 0; l < of.layers; ++l) {
      all.push_back(world.device_scores[static_cast<size_t>(l)]->download());
    }
    return all;
  };
  reset();
  update(updates(0, world.num_jobs), true, workspace.data());
  const auto together = scores();
  for (int i = 0; i < 20; ++i) {
    reset();
    update(updates(0, world.num_jobs), true, workspace.data());
    ASSERT_TRUE(together == scores()) << i;
  }
  reset();
  for (int j = 0; j < world.num_jobs; ++j) update(updates(j, 1), true, workspace.data());
  EXPECT_TRUE(together == scores());
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         CudaAttention,
                         testing::Range(0, static_cast<int>(cases().size())),
                         [](const auto& param) {
                           return cases()[static_cast<size_t>(param.param)].name;
                         });

}  // namespace
}  // namespace zipage::test
