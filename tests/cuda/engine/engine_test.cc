// The engine on a GPU: the answers are the CPU backend's, whatever runs beside a request and
// wherever its keys and values have been.
#include <algorithm>

#include "engine/engine_fixture.h"

namespace zipage::testing_engine {
namespace {

EngineOptions on_gpu(EngineOptions options) {
  options.device = "cuda";
  options.async_compression = true;
  options.num_threads = 0;
  return options;
}

EngineOptions peak_512() {
  EngineOptions options = exact_options();
  options.block_size = 64;
  options.compression.kv_budget = 512;
  options.compression.kv_policy = KvPolicy::kPeak;
  return options;
}

void expect_same_tokens(const std::vector<Answer>& got,
                        const std::vector<Answer>& want,
                        const std::vector<TestProblem>& list) {
  ASSERT_EQ(got.size(), want.size());
  int64_t tokens = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].error.ok()) << got[i].error.message();
    EXPECT_EQ(got[i].text, want[i].text) << list[i].prompt;
    EXPECT_EQ(got[i].tokens, want[i].tokens) << list[i].prompt;
    tokens += static_cast<int64_t>(got[i].tokens.size());
  }
  EXPECT_GT(tokens, 0);
}

TEST(CudaEngine, GreedyTextInF32EqualsTheCpus) {
  const auto list = problems(500, 1200, 8);
  for (EngineOptions options : {exact_options(), peak_512()}) {
    options.num_threads = 0;
    const auto want = answers(*make_engine(options), list);
    const auto engine = make_engine(on_gpu(options));
    EXPECT_EQ(engine->info().device_kind, "cuda");
    expect_same_tokens(answers(*engine, list), want, list);
    EXPECT_EQ(engine->stats().compressions > 0, options.compression.capped());
  }
}

TEST(CudaEngine, GraphsAnswerAsSingleOps) {
  const auto list = problems(700, 900, 6);
  EngineOptions options = on_gpu(peak_512());
  const auto graphs = answers(*make_engine(options), list);
  options.enforce_eager = true;
  expect_same_tokens(answers(*make_engine(options), list), graphs, list);
}

TEST(CudaEngine, CompressionBesideDecodingAnswersAsCompressionInTurn) {
  const auto list = problems(700, 900, 6);
  for (const KvPolicy policy : {KvPolicy::kPeak, KvPolicy::kPaper}) {
    EngineOptions options = on_gpu(capped_options(policy));
    const auto beside = answers(*make_engine(options), list);
    options.async_compression = false;
    const auto engine = make_engine(options);
    expect_same_tokens(answers(*engine, list), beside, list);
    EXPECT_GT(engine->stats().compressions, 6);
  }
}

// Preempted requests are computed again, or their blocks wait in host memory.
TEST(CudaEngine, ATightPoolPreemptsOrSwapsAndStillAnswersTheSame) {
  const auto list = problems(700, 900, 8);
  EngineOptions options = on_gpu(exact_options());
  options.block_size = 64;
  const auto roomy = answers(*make_engine(options), list, 1000);
  options.num_gpu_blocks_override = 40;
  options.max_model_len = 2048;
  {
    const auto engine = make_engine(options);
    expect_same_tokens(answers(*engine, list, 1000), roomy, list);
    EXPECT_GT(engine->stats().preemptions, 0);
    EXPECT_EQ(engine->stats().swapped_out_blocks, 0);
  }
  options.swap_space_bytes = int64_t{256} << 20;
  const auto engine = make_engine(options);
  expect_same_tokens(answers(*engine, list, 1000), roomy, list);
  EXPECT_GT(engine->stats().swapped_out_blocks, 0);
  EXPECT_EQ(engine->stats().swapped_in_blocks, engine->stats().swapped_out_blocks);
}

TEST(CudaEngine, ARequestThatWasCompressedIsSwappedAndAnswersTheSame) {
  const auto list = problems(700, 900, 8);
  EngineOptions options = on_gpu(capped_options(KvPolicy::kPeak));
  const auto roomy = answers(*make_engine(options), list, 1000);
  options.num_gpu_blocks_override = 20;
  options.swap_space_bytes = int64_t{256} << 20;
  const auto engine = make_engine(options);
  expect_same_tokens(answers(*engine, list, 1000), roomy, list);
  EXPECT_GT(engine->stats().compressions, 0);
}

TEST(CudaEngine, APromptFoundInThePrefixCacheAnswersTheSame) {
  const auto list = problems(500, 900, 4);
  EngineOptions options = on_gpu(exact_options());
  options.block_size = 16;
  options.enable_prefix_caching = true;
  const auto engine = make_engine(options);
  const auto first = answers(*engine, list, 400);
  EXPECT_EQ(engine->stats().prefix_cache_hits, 0);
  expect_same_tokens(answers(*engine, list, 400), first, list);
  EXPECT_GT(engine->stats().prefix_cache_hits, 0);
}

double part_right(const std::vector<Answer>& got, const std::vector<TestProblem>& list) {
  int64_t right = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    right += got[i].finish == FinishReason::kStop &&
             got[i].text.ends_with("\\boxed{" + list[i].answer + "}");
  }
  return static_cast<double>(right) / static_cast<double>(list.size());
}

// The kernels of very few tokens overlap with one another.
TEST(CudaEngine, OneRequestAtATimeInBf16IsRight) {
  const auto list = problems(500, 1500, 10);
  for (const bool eager : {false, true}) {
    EngineOptions options = on_gpu(peak_512());
    options.dtype = "bfloat16";
    options.max_num_seqs = 1;
    options.enforce_eager = eager;
    EXPECT_GE(part_right(answers(*make_engine(options), list), list), 0.9);
  }
}

// As the CPU backend: docs/quality.md. bf16, all problems together.
double pass_at_1(EngineOptions options) {
  options = on_gpu(options);
  options.dtype = "bfloat16";
  options.kv_cache_memory_bytes = int64_t{4} << 30;
  const auto list = problems(0, 1 << 20, 1 << 20);
  return part_right(answers(*make_engine(options), list), list);
}

TEST(CudaEngine, PassAt1ByPolicyIsTheCpus) {
  EXPECT_GE(pass_at_1(exact_options()), 0.97);
  EngineOptions options = peak_512();
  options.block_size = 256;
  EXPECT_GE(pass_at_1(options), 0.97);
  options.compression.kv_policy = KvPolicy::kPaper;
  const double paper = pass_at_1(options);
  EXPECT_NEAR(paper, 0.73, 0.06);
  ::testing::Test::RecordProperty("paper", std::to_string(paper));
}

TEST(CudaEngine, MemoryThatIsNotThereIsAnErrorThatNamesTheParts) {
  EngineOptions options = on_gpu(exact_options());
  options.kv_cache_memory_bytes = int64_t{1} << 44;
  auto engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  for (const char* part : {"KV cache", "weights", "activations"}) {
    EXPECT_NE(engine.status().message().find(part), std::string::npos) << engine.status().message();
  }
  // What failed has given its memory back.
  options.kv_cache_memory_bytes = int64_t{64} << 20;
  EXPECT_TRUE(Engine::create(options).ok());
  options.kv_cache_memory_bytes = 0;
  options.gpu_memory_utilization = 1e-6;
  engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(engine.status().message().find("--gpu-memory-utilization"), std::string::npos);
}

}  // namespace
}  // namespace zipage::testing_engine
