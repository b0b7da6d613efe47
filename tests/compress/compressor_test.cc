#include "compress/compressor.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "backend/compression_case.h"
#include "base/error.h"
#include "compress/kv_trace.h"

namespace zipage::testing {
namespace {

constexpr int kBlock = 16;
constexpr int kWindow = 4;
constexpr int kMaxBlocks = 4;  // N_max of the largest budget
constexpr float kScale = 0.125f;

CaseShape shape_of_tests() {
  CaseShape shape;
  shape.num_layers = 3;
  shape.block_size = kBlock;
  shape.window_size = kWindow;
  shape.score_blocks = kMaxBlocks;
  shape.num_slots = 6;
  return shape;
}

// First and later compressions of two budgets, one prompt longer than the score cache, one longer
// than its own N_max only.
std::vector<CaseJob> case_jobs() {
  return {{.slot = 0,
           .length = 64,
           .keep = 48,
           .prompt_length = 20,
           .seed = 1,
           .source = {4, 1, 7, 2},
           .target = {4, 1, 7}},
          {.slot = 1,
           .length = 64,
           .keep = 48,
           .history = 48,
           .prompt_length = 11,
           .source = {8, 3, 0, 5},
           .target = {10, 11, 0}},
          {.slot = 2,
           .length = 48,
           .keep = 32,
           .history = 32,
           .prompt_length = 7,
           .source = {12, 13, 14},
           .target = {12, 13}},
          {.slot = 3,
           .length = 96,
           .keep = 48,
           .prompt_length = 90,
           .source = {15, 16, 17, 18, 19, 20},
           .target = {15, 16, 17}},
          {.slot = 5,
           .length = 64,
           .keep = 32,
           .prompt_length = 60,
           .source = {21, 22, 23, 24},
           .target = {25, 26}}};
}

CompressionOptions options_of(KvPolicy policy) {
  CompressionOptions o;
  o.kv_policy = policy;
  o.kv_budget = 48;
  o.window_size = kWindow;
  o.protect_newest = 6;
  o.attention_half_life = 24;
  return o;
}

std::vector<CompressJob> jobs_of(const CompressionCase& c, const std::vector<KvPolicy>& policies) {
  std::vector<CompressJob> jobs;
  for (size_t i = 0; i < c.jobs().size(); ++i) {
    const CaseJob& from = c.jobs()[i];
    CompressJob job;
    job.sequence = 100 + i;
    job.job_id = i;
    job.slot = SlotId(from.slot);
    job.policy = policies[i % policies.size()];
    job.length = from.length;
    job.keep = from.keep;
    job.history = from.history;
    job.position_offset = c.position_offset(static_cast<int>(i));
    job.prompt_length = from.prompt_length;
    job.max_blocks = from.keep / kBlock + 1;
    for (const int block : from.source) job.source.emplace_back(block);
    for (const int block : from.target) job.target.emplace_back(block);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

CompressionModel model_of(const CompressionCase& c) {
  const CaseShape& s = c.shape();
  return {s.num_layers, s.num_kv_heads * s.group, s.num_kv_heads, s.head_dim, s.rotary_dim, kScale,
          c.rope()};
}

CompressorLimits limits_of_tests() {
  CompressorLimits limits;
  limits.block_size = kBlock;
  limits.max_blocks_per_seq = kMaxBlocks;
  limits.max_model_len = 100;
  limits.max_launch_jobs = 8;
  limits.max_batch_jobs = 2;
  return limits;
}

// The whole of method.md 3 for one head. `f` is the new F (before selection).
oracle::Row oracle_score(const CompressionCase& c,
                         const CompressionOptions& given,
                         int j,
                         int l,
                         int h,
                         oracle::Row& f) {
  const CompressionOptions o = given.resolved(kBlock).value();
  const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
  const auto keys = c.keys(j, l, h);
  const auto positions = c.positions(j, l, h);
  const auto turned = oracle::derotate(keys, positions, c.rope_rows(), c.shape().rotary_dim);
  const int n = job.length;
  auto history = c.history(j, l, h);
  const bool attends = o.kv_policy == KvPolicy::kPaper || o.kv_policy == KvPolicy::kAttention ||
                       o.kv_policy == KvPolicy::kRedundancy || o.kv_policy == KvPolicy::kGlobal;
  oracle::Row s, r;
  bool has_r = false;
  if (attends) {
    s = oracle::attention_score(c.window(j, l, h), keys, kScale);
    if (o.kv_policy == KvPolicy::kPaper || o.kv_policy == KvPolicy::kGlobal) {
      history.resize(static_cast<size_t>(job.history));
      s = oracle::global_score(s, history, o.score_decay, o.score_reduce);
      f = s;
    }
    const bool pools =
        o.pooling == Pooling::kAlways || (o.pooling == Pooling::kFirst && job.history == 0);
    if (o.kv_policy != KvPolicy::kAttention && pools) s = oracle::max_pool(s, o.pooling_width);
    if (o.kv_policy == KvPolicy::kPaper || o.kv_policy == KvPolicy::kRedundancy) {
      const int span = o.redundancy == Redundancy::kLightning ? kBlock : n;
      r = oracle::redundancy(o.derotate ? turned : keys, span, o.similarity_threshold,
                             o.redundancy_temperature)
              .score;
      has_r = true;
    }
  } else if (o.kv_policy == KvPolicy::kPeak) {
    const bool without = job.history == 0 && n > job.keep + kBlock;
    f = without ? oracle::peak_update(c.window(j, l, h), keys, kScale, o.attention_half_life, {}, 0)
                : history;
    f.resize(static_cast<size_t>(n));
    s = oracle::normalized_history(f);
    r = oracle::center_redundancy(turned, o.redundancy_temperature);
    has_r = true;
  } else {
    for (int i = 0; i < n; ++i) s.push_back(i);  // recency
  }
  const auto score = oracle::combine(&s, has_r ? &r : nullptr, *o.score_weight, o.combine);
  return oracle::protect(score, positions, std::max(o.window_size, *o.protect_newest),
                         o.sink_tokens, o.protect_prompt, job.prompt_length);
}

// The slots that a job kept, from the positions in the pool.
std::vector<int> kept_slots(
    const CompressionCase& c, const CompressionCase::Image& after, int j, int l, int h) {
  const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
  const auto positions = c.positions(j, l, h);
  std::vector<int> slots;
  for (int i = 0; i < job.keep; ++i) {
    const int position =
        after
            .positions[static_cast<size_t>(l)][c.slot_offset(job.slot, h) + static_cast<size_t>(i)];
    const auto found = std::lower_bound(positions.begin(), positions.end(), position);
    EXPECT_TRUE(found != positions.end() && *found == position) << position;
    slots.push_back(static_cast<int>(found - positions.begin()));
  }
  return slots;
}

class CompressorTest : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Body>
  static void for_each_head(const CompressionCase& c, Body&& body) {
    for (int j = 0; j < static_cast<int>(c.jobs().size()); ++j) {
      for (int l = 0; l < c.shape().num_layers; ++l) {
        for (int h = 0; h < c.shape().num_kv_heads; ++h) {
          SCOPED_TRACE(::testing::Message() << "job " << j << " layer " << l << " head " << h);
          body(j, l, h);
        }
      }
    }
  }

  // The kept set is the oracle's, but for entries whose scores f32 cannot tell from the last one
  // kept; keys, values, F and positions are a gather of that set.
  static void expect_compressed(const CompressionCase& c,
                                const CompressionCase::Image& after,
                                const CompressionOptions& options,
                                bool has_f) {
    CompressionCase::Image want = c.before();
    const auto& old = c.before();
    int near = 0;
    for_each_head(c, [&](int j, int l, int h) {
      const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
      oracle::Row f;
      const auto score = oracle_score(c, options, j, l, h, f);
      const auto slots = kept_slots(c, after, j, l, h);
      ASSERT_TRUE(std::is_sorted(slots.begin(), slots.end()));
      auto sorted = score;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const double last = sorted[static_cast<size_t>(job.keep) - 1];
      for (int i = 0; i < job.length; ++i) {
        const bool kept = std::binary_search(slots.begin(), slots.end(), i);
        const double s = score[static_cast<size_t>(i)];
        if (std::fabs(s - last) <= 1e-5 * std::fabs(last)) {
          ++near;
        } else {
          ASSERT_EQ(kept, s > last) << "slot " << i << " score " << s << " of " << last;
        }
      }
      const auto layer = static_cast<size_t>(l);
      const auto positions = c.positions(j, l, h);
      for (size_t i = 0; i < slots.size(); ++i) {
        const int from = slots[i];
        const size_t to_at =
            c.entry_offset(job.target[i / kBlock], h, static_cast<int>(i) % kBlock);
        const size_t from_at =
            c.entry_offset(job.source[static_cast<size_t>(from / kBlock)], h, from % kBlock);
        std::copy_n(&old.k[layer][from_at], c.entry_bytes(), &want.k[layer][to_at]);
        std::copy_n(&old.v[layer][from_at], c.entry_bytes(), &want.v[layer][to_at]);
        const size_t at = c.slot_offset(job.slot, h) + i;
        want.positions[layer][at] = positions[static_cast<size_t>(from)];
        if (has_f) {
          ASSERT_NEAR(after.scores[layer][at], f[static_cast<size_t>(from)],
                      1e-8 + 2e-5 * f[static_cast<size_t>(from)]);
        }
      }
    });
    EXPECT_TRUE(after.k == want.k);
    EXPECT_TRUE(after.v == want.v);
    EXPECT_TRUE(after.positions == want.positions);
    // One entry a head is the last one kept; a pooled score is shared by up to pooling_width
    // entries.
    EXPECT_LE(near, 2 * 3 * 5 * (options.pooling_width + 1));
  }
};

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
    compressor.launch(jobs_of(c, {options.kv_policy}), c.stream());
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
    compressor.launch(jobs_of(c, {policy}), c.stream());
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
      for (const auto& job : jobs) compressor.launch({&job, 1}, *stream);
    } else {
      compressor.launch(jobs, *stream);
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

TEST_P(CompressorTest, RandomDrawsAnewWithTheSeedAndTheTokensEvicted) {
  const auto backend = make_backend(GetParam(), 1);
  const auto kept = [&](uint64_t seed) {
    auto options = options_of(KvPolicy::kRandom);
    options.random_seed = seed;
    CompressionCase c(*backend, shape_of_tests(), case_jobs(), 14);
    Compressor compressor(*backend, c.view(), model_of(c), options, limits_of_tests());
    compressor.launch(jobs_of(c, {KvPolicy::kRandom}), c.stream());
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
  const std::string path = ::testing::TempDir() + "compressor_trace_" + std::to_string(::getpid());
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
    compressor.launch(jobs_of(c, {KvPolicy::kPaper, KvPolicy::kPeak}), c.stream());
    compressor.set_trace(nullptr);
    compressor.launch({}, c.stream());
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
  std::filesystem::remove(path);
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
  EXPECT_THROW(compressor.launch(jobs_of(c, {KvPolicy::kPeak}), c.stream()), Error);
  EXPECT_THROW(compressor.launch(jobs_of(c, {KvPolicy::kAttention}), c.stream()), Error);
  compressor.launch(jobs_of(c, {KvPolicy::kRecency}), c.stream());
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
