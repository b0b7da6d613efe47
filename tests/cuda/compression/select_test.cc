// Selection and compaction on the GPU: exact, with ties, NaN and infinities, in place and into
// other blocks.
#include <limits>
#include <unordered_map>

#include "cuda/compression/world.h"

namespace zipage::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Shape shape_of(int block_size, int head_dim, DType dtype, std::vector<JobShape> jobs) {
  Shape shape;
  shape.dtype = shape.query_dtype = dtype;
  shape.head_dim = head_dim;
  shape.block_size = block_size;
  shape.num_kv_heads = 3;
  shape.jobs = std::move(jobs);
  return shape;
}

float draw(int kind, std::mt19937_64* random) {
  std::normal_distribution<float> normal;
  switch (kind) {
    case 0:
      return normal(*random);
    case 1:  // massive ties
      return static_cast<float>((*random)() % 3);
    case 2: {
      const float special[] = {NAN,   kInf, -kInf, 0.0f,
                               -0.0f, 1.0f, -1.0f, std::numeric_limits<float>::denorm_min()};
      return special[(*random)() % 8];
    }
    case 3:
      return NAN;
    default:  // differences in the last bit only
      return std::nextafter(1.0f, (*random)() % 2 == 0 ? 2.0f : 0.0f);
  }
}

TEST(CudaTopK, EqualsTheOracle) {
  for (int kind = 0; kind < 5; ++kind) {
    World world(shape_of(64, 64, DType::kBF16,
                         {{2048, 1792, 0, 0, 0, 0},
                          {1, 1, 0, 0, 0, 0},
                          {700, 700, 0, 0, 0, 0},
                          {513, 1, 0, 0, 0, 0},
                          {9000, 4321, 0, 0, 0, 0}}));
    std::vector<float> scores(world.scratch_size());
    for (float& x : scores) x = draw(kind, &world.random);
    DeviceArray<float> score(scores);
    const int stride = world.batch.max_keep + 5;
    DeviceArray<int32_t> kept(
        static_cast<size_t>(world.num_jobs * world.shape.num_layers * 3 * stride));
    TopKArgs args{};
    world.set_common(&args);
    args.score = score.data();
    args.kept = kept.data();
    args.kept_stride = stride;
    launch_top_k(args, world.context, nullptr);
    ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
    const std::vector<int32_t> got = kept.download();
    world.for_each_unit([&](int j, int l, int h) {
      const JobShape& job = world.shape.jobs[static_cast<size_t>(j)];
      const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(world.row(j, l, h));
      const std::vector<int> want = oracle::top_k({begin, begin + job.length}, job.keep);
      const size_t at = static_cast<size_t>(((j * world.shape.num_layers + l) * 3 + h) * stride);
      const std::vector<int> mine(got.begin() + static_cast<std::ptrdiff_t>(at),
                                  got.begin() + static_cast<std::ptrdiff_t>(at + want.size()));
      ASSERT_EQ(mine, want) << "kind " << kind << " job " << j << " layer " << l << " head " << h;
      EXPECT_EQ(got[at + want.size()], static_cast<int32_t>(0xC5C5C5C5u));
    });
  }
}

enum class Target { kInPlace, kOther, kMixed, kShifted };

class CudaCompact : public testing::TestWithParam<std::tuple<Target, int>> {};

TEST_P(CudaCompact, MovesExactlyTheKeptEntries) {
  const Target target = std::get<0>(GetParam());
  const int kind = std::get<1>(GetParam());
  Shape shapes[] = {
      shape_of(256, 128, DType::kBF16, {{2048, 1792, 1792, 300, 0, 0}, {1000, 600, 0, 0, 0, 0}}),
      shape_of(16, 80, DType::kF16, {{333, 200, 100, 7, 0, 0}, {17, 1, 0, 0, 0, 0}}),
      shape_of(64, 256, DType::kF32, {{640, 512, 512, 60, 0, 0}, {64, 64, 0, 0, 0, 0}}),
      shape_of(32, 96, DType::kF32, {{777, 640, 0, 0, 0, 0}})};
  Shape& shape = shapes[kind % 4];
  if (kind >= 4) shape.score_capacity = 512;  // a prompt longer than the score cache
  if (kind >= 4)
    for (JobShape& job : shape.jobs) job.history = 0, job.keep = std::min(job.keep, 512);
  World world(shape);
  const int heads = shape.num_kv_heads, stride = world.batch.max_keep + 1;
  std::vector<int32_t> targets = world.block_tables;
  size_t spare = 0;
  for (int j = 0; j < world.num_jobs; ++j) {
    const int blocks =
        (shape.jobs[static_cast<size_t>(j)].keep + shape.block_size - 1) / shape.block_size;
    for (int i = 0; i < blocks; ++i) {
      int32_t& id = targets[static_cast<size_t>(j * world.blocks_per_job + i)];
      const int32_t own =
          world.block_tables[static_cast<size_t>(j * world.blocks_per_job + std::max(i - 1, 0))];
      if (target == Target::kOther || (target == Target::kMixed && i % 2 == 0) ||
          (target == Target::kShifted && i == 0)) {
        id = world.spare_blocks[spare++];
      } else if (target == Target::kShifted) {
        id = own;  // an earlier block of its own
      }
    }
  }
  world.batch.target_tables = world.add_table(targets);
  const bool own_history = kind % 2 == 0;
  std::vector<float> f(world.scratch_size());
  std::vector<int32_t> kept(static_cast<size_t>(world.num_jobs * shape.num_layers * heads * stride),
                            -1);
  for (float& x : f) x = draw(0, &world.random);
  auto want_k = world.k, want_v = world.v;
  auto want_scores = world.scores;
  auto want_positions = world.positions;
  const size_t bytes = element_bytes(shape.dtype) * static_cast<size_t>(shape.head_dim);
  world.for_each_unit([&](int j, int l, int h) {
    const JobShape& job = shape.jobs[static_cast<size_t>(j)];
    std::vector<float> score(static_cast<size_t>(job.length));
    for (float& x : score) x = draw(1 + (h % 2) * -1, &world.random);
    const std::vector<int> slots = oracle::top_k(score, job.keep);
    const auto layer = static_cast<size_t>(l);
    for (int i = 0; i < job.keep; ++i) {
      const int source = slots[static_cast<size_t>(i)];
      kept[static_cast<size_t>(((j * shape.num_layers + l) * heads + h) * stride + i)] = source;
      const size_t to =
          world.entry(targets[static_cast<size_t>(j * world.blocks_per_job + i / shape.block_size)],
                      h, i % shape.block_size) *
          element_bytes(shape.dtype);
      const size_t from = world.entry_of(j, h, source) * element_bytes(shape.dtype);
      std::memcpy(want_k[layer].data() + to, world.k[layer].data() + from, bytes);
      std::memcpy(want_v[layer].data() + to, world.v[layer].data() + from, bytes);
      const size_t at = world.history_at(j, h);
      const auto source_at = static_cast<size_t>(source);
      want_scores[layer][at + static_cast<size_t>(i)] =
          !own_history                    ? f[world.row(j, l, h) + source_at]
          : source < world.score_capacity ? world.scores[layer][at + source_at]
                                          : 0.0f;
      want_positions[layer][at + static_cast<size_t>(i)] =
          source < job.history ? world.positions[layer][at + source_at] : source + job.offset;
    }
  });
  DeviceArray<float> history(f);
  DeviceArray<int32_t> device_kept(kept);
  CompactArgs args{};
  world.set_common(&args);
  args.history = own_history ? nullptr : history.data();
  args.kept = device_kept.data();
  args.kept_stride = stride;
  launch_compact(args, world.context, nullptr);
  ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  for (int l = 0; l < shape.num_layers; ++l) {
    const auto layer = static_cast<size_t>(l);
    EXPECT_TRUE(world.device_bytes[3 * layer]->download() == want_k[layer]) << "k of layer " << l;
    EXPECT_TRUE(world.device_bytes[3 * layer + 1]->download() == want_v[layer])
        << "v of layer " << l;
    EXPECT_TRUE(world.device_scores[layer]->download() == want_scores[layer]) << "F of layer " << l;
    EXPECT_TRUE(world.device_positions[layer]->download() == want_positions[layer])
        << "positions of layer " << l;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets,
                         CudaCompact,
                         testing::Combine(testing::Values(Target::kInPlace,
                                                          Target::kOther,
                                                          Target::kMixed,
                                                          Target::kShifted),
                                          testing::Range(0, 6)));

}  // namespace
}  // namespace zipage::test
