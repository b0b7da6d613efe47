// The scores of compression on the GPU against the oracle, over odd shapes.
#include <fmt/format.h>

#include "cuda/compression/world.h"

namespace zipage::test {
namespace {

class CudaCompression : public testing::TestWithParam<int> {
 protected:
  CudaCompression() : world(odd_shapes()[static_cast<size_t>(GetParam())]) {}

  // `expected` is the oracle's row of a unit. Errors are relative to the row's largest value, or to
  // each value.
  template <typename Expected>
  void compare(const DeviceArray<float>& scratch, double tolerance, Expected&& expected) {
    ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
    const std::vector<float> got = scratch.download();
    world.for_each_unit([&](int j, int l, int h) {
      if (HasFailure()) return;
      const oracle::Row want = expected(j, l, h);
      for (size_t i = 0; i < want.size(); ++i) {
        const float x = got[world.row(j, l, h) + i];
        ASSERT_NEAR(x, want[i],
                    tolerance * (std::abs(want[i]) + 1e-3 / static_cast<double>(want.size())))
            << "job " << j << " layer " << l << " head " << h << " entry " << i << " of "
            << want.size();
      }
      // Nothing is written past the end of a row.
      uint32_t bits;
      std::memcpy(&bits, &got[world.row(j, l, h) + want.size()], 4);
      EXPECT_EQ(bits, 0xC5C5C5C5u) << "job " << j << " layer " << l << " head " << h;
    });
  }

  World world;
};

TEST_P(CudaCompression, AttentionScore) {
  DeviceArray<float> score(world.scratch_size()), workspace(world.workspace_floats());
  AttentionScoreArgs args{};
  world.set_common(&args);
  args.scale = 1.0f / std::sqrt(static_cast<float>(world.shape.head_dim));
  args.score = score.data();
  args.workspace = workspace.data();
  launch_attention_score(args, world.context, nullptr);
  compare(score, 2e-4, [&](int j, int l, int h) {
    return oracle::attention_score(world.window_of(j, l, h), world.keys_of(j, l, h), args.scale);
  });
}

TEST_P(CudaCompression, PeakUpdate) {
  std::vector<int32_t> previous, lengths;
  for (const JobShape& job : world.shape.jobs)
    previous.push_back(job.previous), lengths.push_back(job.length);
  PeakUpdateBatch batch;
  batch.num_updates = world.num_jobs;
  batch.max_length = world.max_length;
  batch.slots = world.batch.slots;
  batch.lengths = world.batch.lengths;
  batch.previous_lengths = world.add_table(previous);
  batch.block_tables = world.batch.block_tables;
  batch.block_table_stride = world.batch.block_table_stride;
  DeviceArray<float> workspace(world.workspace_floats()), scratch(world.scratch_size());
  PeakUpdateArgs args{};
  args.batch = &batch;
  args.kv = &world.kv;
  args.num_layers = world.shape.num_layers;
  args.scale = 1.0f / std::sqrt(static_cast<float>(world.shape.head_dim));
  args.half_life = 128;
  args.workspace = workspace.data();
  args.capacity = world.capacity;
  launch_peak_update(args, world.context, nullptr);
  ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  ASSERT_NO_FATAL_FAILURE(world.check_peaks(args.scale, "as chosen"));
  // Into scratch, as the first F of a long prompt.
  batch.previous_lengths = world.add_table(std::vector<int32_t>(previous.size(), 0));
  args.scratch = scratch.data();
  launch_peak_update(args, world.context, nullptr);
  compare(scratch, 2e-4, [&](int j, int l, int h) {
    return oracle::peak_update(world.window_of(j, l, h), world.keys_of(j, l, h), args.scale, 128,
                               {}, 0);
  });
}

TEST_P(CudaCompression, Redundancy) {
  for (const bool derotate : {false, true}) {
    for (const Redundancy mode : {Redundancy::kLightning, Redundancy::kFlash}) {
      const auto oracle_of = [&](int j, int l, int h, double threshold) {
        oracle::Rows keys = world.keys_of(j, l, h);
        if (derotate) {
          oracle::Rows angles(World::kMaxPosition);
          const auto d = static_cast<size_t>(world.shape.head_dim);
          for (size_t p = 0; p < angles.size(); ++p) {
            angles[p].assign(world.cos_sin.begin() + static_cast<std::ptrdiff_t>(p * d),
                             world.cos_sin.begin() + static_cast<std::ptrdiff_t>((p + 1) * d));
          }
          keys = oracle::derotate(keys, world.positions_of(j, l, h), angles, world.shape.head_dim);
        }
        const int n = static_cast<int>(keys.size());
        return oracle::redundancy(keys, mode == Redundancy::kLightning ? world.shape.block_size : n,
                                  threshold, 0.4);
      };
      DeviceArray<float> score(world.scratch_size()), workspace(world.workspace_floats());
      RedundancyArgs args{};
      world.set_common(&args);
      args.mode = mode;
      args.similarity_threshold = 0.5f;
      args.temperature = 0.4f;
      args.derotate = derotate;
      args.rope_cos_sin = world.device_cos_sin->data();
      args.rotary_dim = world.shape.head_dim;
      args.out = score.data();
      args.workspace = workspace.data();
      // On Hopper also the kernel for every device.
      for (const bool hopper : {true, false}) {
        CudaContext context = world.context;
        if (!hopper) {
          if (context.encode_tensor_map == nullptr || derotate || mode == Redundancy::kFlash) break;
          context.encode_tensor_map = nullptr;
        }
        launch_redundancy(args, context, nullptr);
        ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
        const std::vector<float> got = score.download();
        world.for_each_unit([&](int j, int l, int h) {
          if (HasFailure()) return;
          const oracle::RedundancyResult want = oracle_of(j, l, h, 0.5);
          // A pair as close to the threshold as f32 sums are exact may fall on either side: it
          // moves two entries of the row, by 1 / (len * tau) at most.
          const int len = mode == Redundancy::kLightning ? world.shape.block_size
                                                         : static_cast<int>(want.score.size());
          int moved = 0;
          for (size_t i = 0; i < want.score.size(); ++i) {
            const double error =
                std::abs(got[world.row(j, l, h) + i] - want.score[i]) / want.score[i];
            const std::string where = fmt::format(
                "hopper {} derotate {} mode {} job {} layer {} head {} entry {} of {} margin {}",
                hopper, derotate, static_cast<int>(mode), j, l, h, i, want.score.size(),
                want.margin);
            ASSERT_LE(error, want.margin < 1e-5 ? 1.1 / (len * 0.4) + 1e-4 : 1e-4) << where;
            moved += error > 1e-4;
          }
          EXPECT_LE(moved, 8) << "job " << j << " layer " << l << " head " << h;
          uint32_t bits;
          std::memcpy(&bits, &got[world.row(j, l, h) + want.score.size()], 4);
          EXPECT_EQ(bits, 0xC5C5C5C5u) << "job " << j << " layer " << l << " head " << h;
        });
      }
    }
  }
}

TEST_P(CudaCompression, CenterRedundancy) {
  oracle::Rows angles(World::kMaxPosition);
  const auto d = static_cast<size_t>(world.shape.head_dim);
  for (size_t p = 0; p < angles.size(); ++p) {
    angles[p].assign(world.cos_sin.begin() + static_cast<std::ptrdiff_t>(p * d),
                     world.cos_sin.begin() + static_cast<std::ptrdiff_t>((p + 1) * d));
  }
  DeviceArray<float> score(world.scratch_size()), workspace(world.workspace_floats());
  CenterRedundancyArgs args{};
  world.set_common(&args);
  args.temperature = 0.4f;
  args.rope_cos_sin = world.device_cos_sin->data();
  args.rotary_dim = world.shape.head_dim;
  args.out = score.data();
  args.workspace = workspace.data();
  launch_center_redundancy(args, world.context, nullptr);
  compare(score, 2e-5, [&](int j, int l, int h) {
    return oracle::center_redundancy(
        oracle::derotate(world.keys_of(j, l, h), world.positions_of(j, l, h), angles,
                         world.shape.head_dim),
        0.4);
  });
}

TEST_P(CudaCompression, ElementwiseOps) {
  std::normal_distribution<float> normal;
  std::vector<float> a(world.scratch_size()), b(world.scratch_size());
  for (float& x : a) x = std::abs(normal(world.random));
  for (float& x : b) x = std::abs(normal(world.random));
  const auto row_of = [&](const std::vector<float>& from, int j, int l, int h) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(world.row(j, l, h));
    return oracle::Row(begin, begin + world.shape.jobs[static_cast<size_t>(j)].length);
  };
  const auto check = [&](const DeviceArray<float>& scratch, auto&& expected, double tolerance,
                         const char* what) {
    ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
    const std::vector<float> got = scratch.download();
    world.for_each_unit([&](int j, int l, int h) {
      if (HasFailure()) return;
      const oracle::Row want = expected(j, l, h);
      for (size_t i = 0; i < want.size(); ++i) {
        const float x = got[world.row(j, l, h) + i];
        if (std::isinf(want[i])) {
          ASSERT_EQ(x, want[i]) << what << " entry " << i;
        } else {
          ASSERT_NEAR(x, want[i], tolerance * (std::abs(want[i]) + 1e-3)) << what << " entry " << i;
        }
      }
    });
  };
  for (const ScoreReduce reduce : {ScoreReduce::kMax, ScoreReduce::kSum}) {
    DeviceArray<float> score(a);
    GlobalScoreArgs args{};
    world.set_common(&args);
    args.decay = 0.8f;
    args.reduce = reduce;
    args.score = score.data();
    launch_global_score(args, world.context, nullptr);
    check(
        score,
        [&](int j, int l, int h) {
          return oracle::global_score(
              row_of(a, j, l, h),
              world.history_of(j, l, h, world.shape.jobs[static_cast<size_t>(j)].history), 0.8,
              reduce);
        },
        1e-6, "global score");
  }
  for (const bool only_first : {false, true}) {
    DeviceArray<float> score(a), out(a.size());
    MaxPoolArgs args{};
    world.set_common(&args);
    args.width = 5;
    args.only_first = only_first;
    args.score = score.data();
    args.out = out.data();
    launch_max_pool(args, world.context, nullptr);
    check(
        out,
        [&](int j, int l, int h) {
          const bool pool = !only_first || world.shape.jobs[static_cast<size_t>(j)].history == 0;
          return pool ? oracle::max_pool(row_of(a, j, l, h), 5) : row_of(a, j, l, h);
        },
        0, "max pool");
  }
  for (const Combine how : {Combine::kConvex, Combine::kSubtract}) {
    for (int absent = 0; absent < 3; ++absent) {
      DeviceArray<float> s(a), r(b);
      CombineArgs args{};
      world.set_common(&args);
      args.combine = how;
      args.weight = 0.2f;
      args.attention = absent == 1 ? nullptr : s.data();
      args.redundancy = absent == 2 ? nullptr : r.data();
      args.score = absent == 1 ? r.data() : s.data();  // in place
      launch_combine(args, world.context, nullptr);
      check(
          absent == 1 ? r : s,
          [&](int j, int l, int h) {
            const oracle::Row x = row_of(a, j, l, h), y = row_of(b, j, l, h);
            return oracle::combine(absent == 1 ? nullptr : &x, absent == 2 ? nullptr : &y, 0.2f,
                                   how);
          },
          1e-4, "combine");
    }
  }
  {
    DeviceArray<float> score(a);
    ProtectArgs args{};
    world.set_common(&args);
    args.newest = 7;
    args.sinks = 4;
    args.protect_prompt = true;
    args.score = score.data();
    launch_protect(args, world.context, nullptr);
    check(
        score,
        [&](int j, int l, int h) {
          return oracle::protect(row_of(a, j, l, h), world.positions_of(j, l, h), 7, 4, true,
                                 world.shape.jobs[static_cast<size_t>(j)].prompt);
        },
        0, "protect");
  }
  for (const KvPolicy policy : {KvPolicy::kRecency, KvPolicy::kRandom}) {
    DeviceArray<float> score(a.size());
    PlainScoreArgs args{};
    world.set_common(&args);
    args.policy = policy;
    args.score = score.data();
    launch_plain_score(args, world.context, nullptr);
    check(
        score,
        [&](int j, int l, int h) {
          oracle::Row want;
          const std::vector<int> positions = world.positions_of(j, l, h);
          for (size_t i = 0; i < positions.size(); ++i) {
            want.push_back(policy == KvPolicy::kRecency
                               ? static_cast<double>(i)
                               : oracle::random_score(world.seeds[static_cast<size_t>(j)], l, h,
                                                      positions[i]));
          }
          return want;
        },
        0, "plain score");
  }
  for (const bool own : {true, false}) {
    DeviceArray<float> history(a), score(a.size());
    NormalizedHistoryArgs args{};
    world.set_common(&args);
    args.history = own ? nullptr : history.data();
    args.score = score.data();
    launch_normalized_history(args, world.context, nullptr);
    check(
        score,
        [&](int j, int l, int h) {
          return oracle::normalized_history(
              own ? world.history_of(j, l, h, world.shape.jobs[static_cast<size_t>(j)].length)
                  : row_of(a, j, l, h));
        },
        1e-5, "normalized history");
  }
}

INSTANTIATE_TEST_SUITE_P(OddShapes,
                         CudaCompression,
                         testing::Range(0, static_cast<int>(odd_shapes().size())),
                         [](const auto& param) {
                           return odd_shapes()[static_cast<size_t>(param.param)].name;
                         });

// A prompt whose chunks could not all wait for each other: several launches instead of one.
TEST(CudaCompressionLong, ScoresOfALongPrompt) {
  Shape shape;
  shape.num_kv_heads = 1;
  shape.num_layers = 1;
  shape.group = 5;
  shape.head_dim = 64;
  shape.jobs = {{5000, 512, 0, 0, 10, 0}};
  World world(shape);
  world.context.num_sms = 8;  // as on a small device
  DeviceArray<float> score(world.scratch_size()), center(world.scratch_size()),
      workspace(world.workspace_floats());
  AttentionScoreArgs args{};
  world.set_common(&args);
  args.scale = 0.125f;
  args.score = score.data();
  args.workspace = workspace.data();
  launch_attention_score(args, world.context, nullptr);
  CenterRedundancyArgs center_args{};
  world.set_common(&center_args);
  center_args.temperature = 0.4f;
  center_args.rope_cos_sin = world.device_cos_sin->data();
  center_args.rotary_dim = 64;
  center_args.out = center.data();
  center_args.workspace = workspace.data();
  launch_center_redundancy(center_args, world.context, nullptr);
  ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  const oracle::Rows keys = world.keys_of(0, 0, 0);
  const oracle::Row want = oracle::attention_score(world.window_of(0, 0, 0), keys, 0.125);
  oracle::Rows angles(5000);
  for (size_t p = 0; p < angles.size(); ++p) {
    angles[p].assign(world.cos_sin.begin() + static_cast<std::ptrdiff_t>(p * 64),
                     world.cos_sin.begin() + static_cast<std::ptrdiff_t>((p + 1) * 64));
  }
  const oracle::Row want_center = oracle::center_redundancy(
      oracle::derotate(keys, world.positions_of(0, 0, 0), angles, 64), 0.4);
  const std::vector<float> got = score.download(), got_center = center.download();
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-4 * (want[i] + 1e-7)) << i;
    ASSERT_NEAR(got_center[i], want_center[i], 2e-5 * want_center[i]) << i;
  }
}

// More chunks than blocks at a time: a block works on several, of different lengths, and fetches
// the next while it waits.
TEST(CudaCompressionRounds, BlocksTakeSeveralChunks) {
  Shape shape;
  shape.num_kv_heads = 3;
  shape.num_layers = 4;
  for (int j = 0; j < 6; ++j) shape.jobs.push_back({1000 - 190 * j, 10, 0, 0, 10, 0});
  World world(shape);
  world.context.num_sms = 8;
  DeviceArray<float> score(world.scratch_size()), workspace(world.workspace_floats());
  AttentionScoreArgs args{};
  world.set_common(&args);
  args.scale = 0.0884f;
  args.score = score.data();
  args.workspace = workspace.data();
  for (int i = 0; i < 20; ++i) launch_attention_score(args, world.context, nullptr);
  ZIPAGE_CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<float> got = score.download();
  world.for_each_unit([&](int j, int l, int h) {
    if (HasFailure()) return;
    const oracle::Row want =
        oracle::attention_score(world.window_of(j, l, h), world.keys_of(j, l, h), args.scale);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[world.row(j, l, h) + i], want[i], 2e-4 * (want[i] + 1e-6)) << i;
    }
  });
}

}  // namespace
}  // namespace zipage::test
