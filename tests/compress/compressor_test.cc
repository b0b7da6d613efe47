#include "compress/compressor.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>

#include "base/error.h"
#include "compress/compressor_fixture.h"
#include "compress/kv_trace.h"
#include "support/files.h"

namespace zipage::testing {
namespace {

TEST_P(CompressorTest, KeepsWhatTheMethodSays) {
  std::vector<CompressionOptions> settings;
  for (const KvPolicy policy : {KvPolicy::kPeak, KvPolicy::kPaper, KvPolicy::kAttention,
                                KvPolicy::kRedundancy, KvPolicy::kGlobal, KvPolicy::kRecency}) {
    settings.push_back(options_of(policy));
  }
  auto o = options_of(KvPolicy::kPeak);
  o.sink_tokens = 3;
  o.combine = Combine::kSubtract;
  settings.push_back(o);
  o = options_of(KvPolicy::kPaper);
  o.redundancy = Redundancy::kFlash;
  o.pooling = Pooling::kNever;
  o.score_reduce = ScoreReduce::kSum;
  o.derotate = true;
  settings.push_back(o);
  o = options_of(KvPolicy::kRedundancy);
  o.pooling = Pooling::kAlways;
  o.pooling_width = 3;
  o.redundancy = Redundancy::kRaw;
  o.combine = Combine::kSubtract;
  settings.push_back(o);
  const auto backend = make_backend(GetParam(), 2);
  for (size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "setting " << i);
    const CompressionOptions& options = settings[i];
    CompressionCase c(*backend, shape_of_tests(), case_jobs(), 11);
    Compressor compressor(*backend, c.view(), model_of(c), options, limits_of_tests());
    compress(compressor, jobs_of(c, {options.kv_policy}), c.stream());
    const bool has_f = options.kv_policy == KvPolicy::kPeak ||
                       options.kv_policy == KvPolicy::kPaper ||
                       options.kv_policy == KvPolicy::kGlobal;
    expect_compressed(c, c.download(), options, has_f);
  }
}

TEST_P(CompressorTest, TheProtectedSurvive) {
  const auto backend = make_backend(GetParam(), 1);
  for (const KvPolicy policy : {KvPolicy::kPeak, KvPolicy::kPaper, KvPolicy::kRandom}) {
    auto options = options_of(policy);
    options.protect_newest = 10;
    options.sink_tokens = 2;
    options.protect_prompt = true;
    auto jobs = case_jobs();
    for (auto& job : jobs) job.prompt_length = std::min(job.prompt_length, 20);
    CompressionCase c(*backend, shape_of_tests(), jobs, 12);
    Compressor compressor(*backend, c.view(), model_of(c), options, limits_of_tests());
    compress(compressor, jobs_of(c, {policy}), c.stream());
    const auto after = c.download();
    for_each_head(c, [&](int j, int l, int h) {
      const auto slots = kept_slots(c, after, j, l, h);
      const auto positions = c.positions(j, l, h);
      const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
      for (int i = 0; i < job.length; ++i) {
        if (i >= job.length - 10 || positions[static_cast<size_t>(i)] < job.prompt_length) {
          EXPECT_TRUE(std::binary_search(slots.begin(), slots.end(), i)) << i;
        }
      }
    });
  }
}

// Whatever shares the launch, the stride, the batch, the threads and the stream: the same bytes.
TEST_P(CompressorTest, TheResultDoesNotDependOnWhatRunsBesideIt) {
  const std::vector<KvPolicy> mixed = {KvPolicy::kPeak, KvPolicy::kPaper, KvPolicy::kRandom,
                                       KvPolicy::kPeak, KvPolicy::kRedundancy};
  struct Setting {
    int threads, stride, batch_jobs;
    bool one_by_one, queued;
  };
  std::optional<CompressionCase::Image> first;
  for (const Setting s : {Setting{1, 8, 4, false, false}, Setting{2, 1, 1, false, false},
                          Setting{2, 2, 2, true, false}, Setting{2, 3, 4, false, true}}) {
    const auto backend = make_backend(GetParam(), s.threads);
    CompressionCase c(*backend, shape_of_tests(), case_jobs(), 13);
    auto options = options_of(KvPolicy::kPeak);
    options.layer_stride = s.stride;
    CompressorLimits limits = limits_of_tests();
    limits.max_batch_jobs = s.batch_jobs;
    Compressor compressor(*backend, c.view(), model_of(c), options, limits);
    const auto stream = backend->create_stream(s.queued);
    auto jobs = jobs_of(c, mixed);
    if (s.one_by_one) {
      std::reverse(jobs.begin(), jobs.end());
      for (const auto& job : jobs) compress(compressor, {job}, *stream);
    } else {
      compress(compressor, jobs, *stream);
    }
    backend->synchronize(*stream);
    const auto after = c.download();
    if (!first) first = after;
    EXPECT_TRUE(after.k == first->k);
    EXPECT_TRUE(after.v == first->v);
    EXPECT_TRUE(after.scores == first->scores);
    EXPECT_TRUE(after.positions == first->positions);
  }
  EXPECT_FALSE(first->k == first->v);
}

TEST_P(CompressorTest, APlanGroupsWhatSharesOpsAndSetsAsideWhatCannotRun) {
  const auto backend = make_backend(GetParam(), 1);
  CompressionCase c(*backend, shape_of_tests(), case_jobs(), 20);
  Compressor compressor(*backend, c.view(), model_of(c), options_of(KvPolicy::kPeak),
                        limits_of_tests());
  // Job 3 is longer than the score cache, 4 than its own N_max.
  auto jobs = jobs_of(c, {KvPolicy::kPeak});
  jobs[1].policy = KvPolicy::kPaper;
  jobs[2].keep = jobs[2].length + 1;
  const auto ids = [](const std::vector<PlannedBatch>& batches) {
    std::vector<std::vector<uint64_t>> list;
    for (const PlannedBatch& batch : batches) {
      list.emplace_back();
      for (const CompressJob& job : batch.jobs) list.back().push_back(job.job_id);
    }
    return list;
  };
  using Ids = std::vector<std::vector<uint64_t>>;
  const auto batches = compressor.plan(jobs, c.stream());
  EXPECT_EQ(ids(batches), (Ids{{2}, {0}, {4}, {3}, {1}}));
  EXPECT_FALSE(batches[0].status.ok());
  EXPECT_THROW(compressor.run(batches[0], c.stream()), Error);
  for (size_t i = 1; i < batches.size(); ++i) {
    EXPECT_TRUE(batches[i].status.ok());
    compressor.run(batches[i], c.stream());
  }
  // At most max_batch_jobs, which is 2, share a batch.
  jobs = jobs_of(c, {KvPolicy::kPaper});
  EXPECT_EQ(ids(compressor.plan(jobs, c.stream())), (Ids{{0, 1}, {2, 4}, {3}}));
  // The tables of an earlier plan are gone.
  EXPECT_ANY_THROW(compressor.run(batches[1], c.stream()));
  EXPECT_TRUE(compressor.plan({}, c.stream()).empty());
}

TEST_P(CompressorTest, RandomDrawsAnewWithTheSeedAndTheTokensEvicted) {
  const auto backend = make_backend(GetParam(), 1);
  const auto kept = [&](uint64_t seed) {
    auto options = options_of(KvPolicy::kRandom);
    options.random_seed = seed;
    CompressionCase c(*backend, shape_of_tests(), case_jobs(), 14);
    Compressor compressor(*backend, c.view(), model_of(c), options, limits_of_tests());
    compress(compressor, jobs_of(c, {KvPolicy::kRandom}), c.stream());
    const auto after = c.download();
    std::vector<std::vector<int>> slots;
    for_each_head(c, [&](int j, int l, int h) { slots.push_back(kept_slots(c, after, j, l, h)); });
    return slots;
  };
  const auto one = kept(1);
  EXPECT_EQ(one, kept(1));
  EXPECT_NE(one, kept(2));
  EXPECT_NE(one[0], one[1]);  // heads differ
}

// method.md 3.2: F by windows equals F by the per-step rule; here through the ring of the query
// cache.
TEST_P(CompressorTest, PeakByWindowsEqualsPeakByStep) {
  const auto backend = make_backend(GetParam(), 2);
  CaseShape shape = shape_of_tests();
  shape.num_layers = 1;
  const std::vector<CaseJob> jobs = {
      {.slot = 2, .length = 64, .keep = 48, .source = {3, 0, 2, 1}, .target = {3, 0, 2}}};
  CompressionCase c(*backend, shape, jobs, 15);
  Compressor compressor(*backend, c.view(), model_of(c), options_of(KvPolicy::kPeak),
                        limits_of_tests());
  const int heads = shape.num_kv_heads * shape.group;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // queries[t] holds all heads of the query at slot t.
  std::vector<std::vector<float>> queries(64);
  for (auto& query : queries) {
    query.resize(static_cast<size_t>(heads * shape.head_dim));
    for (float& x : query) x = 2 * normal(random);
  }
  const std::vector<BlockId> table = {BlockId(3), BlockId(0), BlockId(2), BlockId(1)};
  float* ring =
      reinterpret_cast<float*>(c.view().layers[0].queries) + 2 * kWindow * heads * shape.head_dim;
  int previous = 0;
  // Windows need not be whole: the last chunk of a prompt may end anywhere, and overlaps do no
  // harm.
  std::vector<int> lengths = {7};
  for (int length = 8; length <= 64; length += kWindow) lengths.push_back(length);
  int written = 0;
  for (const int length : lengths) {
    for (; written < length; ++written) {
      const auto& query = queries[static_cast<size_t>(written)];
      backend->copy(ring + (written % kWindow) * heads * shape.head_dim, query.data(),
                    query.size() * sizeof(float), c.stream());
      backend->synchronize(c.stream());
    }
    const PeakUpdate update = {SlotId(2), length, previous, table};
    compressor.update_peaks({&update, 1}, c.stream());
    previous = length;
  }
  const auto after = c.download();
  for (int h = 0; h < shape.num_kv_heads; ++h) {
    oracle::Window all;
    for (const auto& query : queries) {
      oracle::Rows group;
      for (int g = 0; g < shape.group; ++g) {
        const auto begin = query.begin() + (h * shape.group + g) * shape.head_dim;
        group.emplace_back(begin, begin + shape.head_dim);
      }
      all.push_back(group);
    }
    // Query 7 - w is the first that any window saw.
    const auto want = oracle::peak_by_steps(all, c.keys(0, 0, h), kScale, 24, 7 - kWindow);
    for (int i = 0; i < 64; ++i) {
      const float got = after.scores[0][c.slot_offset(2, h) + static_cast<size_t>(i)];
      EXPECT_NEAR(got, want[static_cast<size_t>(i)], 1e-8 + 2e-5 * want[static_cast<size_t>(i)])
          << i;
    }
  }
}

TEST_P(CompressorTest, ManyPeakUpdatesEqualEachAlone) {
  const auto run = [&](bool together, int threads) {
    const auto backend = make_backend(GetParam(), threads);
    CompressionCase c(*backend, shape_of_tests(), case_jobs(), 16);
    auto options = options_of(KvPolicy::kPeak);
    options.layer_stride = together ? 2 : 8;
    Compressor compressor(*backend, c.view(), model_of(c), options, limits_of_tests());
    const auto jobs = jobs_of(c, {KvPolicy::kPeak});
    std::vector<PeakUpdate> updates;
    for (const auto& job : jobs) {
      if (job.length <= 64) updates.push_back({job.slot, job.length, job.history, job.source});
    }
    if (together) {
      compressor.update_peaks(updates, c.stream());
    } else {
      for (const auto& update : updates) compressor.update_peaks({&update, 1}, c.stream());
    }
    return c.download().scores;
  };
  const auto together = run(true, 2);
  EXPECT_TRUE(together == run(false, 1));
}

TEST_P(CompressorTest, TheTraceSaysWhatSurvived) {
  const test::TempFolder folder;
  const std::string path = folder.file("trace.zpkv");
  const auto backend = make_backend(GetParam(), 1);
  CompressionCase c(*backend, shape_of_tests(), case_jobs(), 17);
  CompressorLimits limits = limits_of_tests();
  limits.trace = true;
  auto options = options_of(KvPolicy::kPaper);
  options.layer_stride = 2;
  Compressor compressor(*backend, c.view(), model_of(c), options, limits);
  {
    KvTraceWriter writer(path);
    compressor.set_trace(&writer);
    compress(compressor, jobs_of(c, {KvPolicy::kPaper, KvPolicy::kPeak}), c.stream());
    compressor.set_trace(nullptr);
    compress(compressor, {}, c.stream());
  }
  const auto after = c.download();
  KvTraceReader reader(path);
  KvTraceRecord record;
  int count = 0;
  while (reader.next(record)) {
    ++count;
    const auto j = static_cast<int>(record.sequence) - 100;
    const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
    EXPECT_EQ(record.policy, j % 2 == 0 ? KvPolicy::kPaper : KvPolicy::kPeak);
    EXPECT_EQ(record.keep, job.keep);
    EXPECT_EQ(record.tokens, job.length + c.position_offset(j));
    ASSERT_EQ(record.num_heads, 2);
    int protected_entries = 0;
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < job.keep; ++i) {
        const auto at = static_cast<size_t>(h * job.keep + i);
        EXPECT_EQ(record.positions[at],
                  after.positions[static_cast<size_t>(record.layer)]
                                 [c.slot_offset(job.slot, h) + static_cast<size_t>(i)]);
        protected_entries += std::isinf(record.scores[at]) ? 1 : 0;
      }
    }
    EXPECT_EQ(protected_entries, 2 * 6);
  }
  EXPECT_EQ(count, 5 * 3);
}

TEST_P(CompressorTest, MemoryIsWhatThePlanWasTold) {
  const auto backend = make_backend(GetParam(), 2);
  CompressionCase c(*backend, shape_of_tests(), case_jobs(), 18);
  for (const int stride : {1, 3}) {
    auto options = options_of(KvPolicy::kPeak);
    options.layer_stride = stride;
    Compressor compressor(*backend, c.view(), model_of(c), options, limits_of_tests());
    const auto memory = Compressor::memory(*backend, model_of(c), options, limits_of_tests());
    EXPECT_EQ(compressor.device_bytes(), memory.device_bytes);
  }
}

TEST_P(CompressorTest, BadOptionsAndMissingMemoryAreErrors) {
  const auto backend = make_backend(GetParam(), 1);
  CompressionCase c(*backend, shape_of_tests(), case_jobs(), 19);
  auto options = options_of(KvPolicy::kPeak);
  options.redundancy_temperature = -1;
  EXPECT_THROW(Compressor(*backend, c.view(), model_of(c), options, limits_of_tests()), Error);
  options = options_of(KvPolicy::kPeak);
  options.protect_newest = 48;  // as large as the budget
  EXPECT_THROW(Compressor(*backend, c.view(), model_of(c), options, limits_of_tests()), Error);

  std::vector<LayerKvView> layers(c.view().layers, c.view().layers + 3);
  for (auto& layer : layers) {
    layer.scores = nullptr;
    layer.queries = nullptr;
  }
  PagedKvView bare = c.view();
  bare.layers = layers.data();
  Compressor compressor(*backend, bare, model_of(c), options_of(KvPolicy::kRecency),
                        limits_of_tests());
  EXPECT_THROW(compress(compressor, jobs_of(c, {KvPolicy::kPeak}), c.stream()), Error);
  EXPECT_THROW(compress(compressor, jobs_of(c, {KvPolicy::kAttention}), c.stream()), Error);
  compress(compressor, jobs_of(c, {KvPolicy::kRecency}), c.stream());
  const auto after = c.download();
  EXPECT_TRUE(after.scores == c.before().scores);
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         CompressorTest,
                         ::testing::ValuesIn(backends_here()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace zipage::testing
