// The engine on a GPU: the answers are the CPU backend's, whatever runs beside a request and
// wherever its keys and values have been.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend/registry/registry.h"
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

// Of Qwen3-0.6B's shape, with dummy weights: a step takes the device longer than the host.
class LongPromptModel {
 public:
  LongPromptModel() : path_(std::filesystem::temp_directory_path() / "zipage_long_prompt_model") {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json") << R"({"architectures": ["Qwen3ForCausalLM"],
      "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
      "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
      "attention_bias": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "bos_token_id": 1, "eos_token_id": 2})";
  }
  ~LongPromptModel() { std::filesystem::remove_all(path_); }
  EngineOptions options() const {
    EngineOptions o;
    o.model = path_.string();
    o.load_format = "dummy";
    o.device = "cuda";
    o.dtype = "bfloat16";
    o.max_num_seqs = 8;
    o.max_num_batched_tokens = 4096;
    o.max_model_len = 32768;
    o.kv_cache_memory_bytes = int64_t{12} << 30;
    o.enable_prefix_caching = false;
    o.compression.kv_budget = kFullKv;
    return o;
  }

 private:
  const std::filesystem::path path_;
};

std::vector<Answer> long_prompt_answers(const EngineOptions& options, bool one_step_at_a_time) {
  auto engine = Engine::create(options);
  if (!engine.ok()) throw std::runtime_error(engine.status().message());
  // A profile waits for the device after every step.
  (*engine)->set_profiling(one_step_at_a_time);
  constexpr int kLengths[] = {20000, 28000, 300};
  std::vector<Answer> list(std::size(kLengths));
  for (size_t i = 0; i < list.size(); ++i) {
    Request r;
    for (int t = 0; t < kLengths[i]; ++t)
      r.prompt_token_ids.push_back(1000 + static_cast<int32_t>((t * 7919 + t / 13) % 150000));
    r.sampling.temperature = 0;
    r.sampling.max_tokens = 24;
    r.sampling.ignore_eos = true;
    r.sampling.detokenize = false;
    r.sampling.logprobs = 0;
    // Scores of prompt tokens are a second thing that the host writes for each chunk.
    if (i == 1) r.sampling.prompt_logprobs = 1;
    const auto id = (*engine)->submit(r, collect_into(list[i]));
    if (!id.ok()) throw std::runtime_error(id.status().message());
  }
  (*engine)->run_until_idle();
  return list;
}

// Chunks of a long prompt are enqueued one after another while the device is at the first: what the
// host writes for a chunk must not change what an earlier one has yet to read.
TEST(CudaEngine, LongPromptsInChunksAnswerAsOneStepAtATime) {
  const LongPromptModel model;
  EngineOptions options = model.options();
  options.enforce_eager = true;
  const std::vector<Answer> right = long_prompt_answers(options, /*one_step_at_a_time=*/true);
  for (const bool eager : {true, false}) {
    options.enforce_eager = eager;
    for (int round = 0; round < 2; ++round) {
      const std::vector<Answer> got = long_prompt_answers(options, false);
      for (size_t i = 0; i < right.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << "prompt " << i << (eager ? ", eager" : ", graphs"));
        ASSERT_TRUE(got[i].error.ok()) << got[i].error.message();
        ASSERT_EQ(got[i].tokens.size(), 24u);
        // What the chunks computed decides the first token and the scores.
        EXPECT_EQ(got[i].tokens[0], right[i].tokens[0]);
        EXPECT_EQ(got[i].logprobs[0], right[i].logprobs[0]);
        EXPECT_EQ(got[i].prompt_logprobs, right[i].prompt_logprobs);
        if (!eager) continue;
        EXPECT_EQ(got[i].tokens, right[i].tokens);
        EXPECT_EQ(got[i].logprobs, right[i].logprobs);
      }
    }
  }
}

// One chunk for the whole prompt: the same but for the rounding of other launches.
TEST(CudaEngine, ALongPromptInChunksAnswersAsInOneChunk) {
  const LongPromptModel model;
  EngineOptions options = model.options();
  options.enforce_eager = true;
  const std::vector<Answer> chunks = long_prompt_answers(options, false);
  options.max_num_batched_tokens = 32768;
  options.max_num_seqs = 1;
  const std::vector<Answer> whole = long_prompt_answers(options, false);
  for (size_t i = 0; i < whole.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(chunks[i].tokens.size(), whole[i].tokens.size());
    EXPECT_NEAR(chunks[i].logprobs[0], whole[i].logprobs[0], 0.1);
    ASSERT_EQ(chunks[i].prompt_logprobs.size(), whole[i].prompt_logprobs.size());
    double difference = 0, spread = 0;
    for (size_t k = 1; k < whole[i].prompt_logprobs.size(); ++k) {
      const double a = chunks[i].prompt_logprobs[k], b = whole[i].prompt_logprobs[k];
      difference += (a - b) * (a - b);
      const double step = b - whole[i].prompt_logprobs[k - 1];
      spread += step * step;
    }
    // Of what scores differ by from token to token, rounding is a small part.
    EXPECT_LE(difference, 0.02 * spread);
  }
}

// A fault of a kernel stays in the CUDA context: the engine says so and ends. In a process of its
// own, which nothing else of CUDA can be run in afterwards.
TEST(CudaEngineDeathTest, AFaultOfTheGpuEndsTheEngine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        BackendOptions options;
        options.dtype = DType::kBF16;
        const auto backend = create_backend("cuda", options);
        const auto stream = backend->create_stream(false);
        bool right = backend->device_health().ok();
        // Rows of an address that nobody owns.
        auto* nowhere = reinterpret_cast<int32_t*>(uintptr_t{0x10});
        Buffer out = backend->allocate(4096, MemorySpace::kDevice);
        try {
          backend->gather_rows({.dtype = DType::kBF16,
                                .x = out.data(),
                                .rows = nowhere,
                                .num_rows = 4,
                                .hidden = 64,
                                .out = out.data()},
                               *stream);
          backend->synchronize(*stream);
          right = false;
        } catch (const std::exception&) {
        }
        const Status health = backend->device_health();
        right = right && health.code() == StatusCode::kUnavailable;
        std::fprintf(stderr, "%s: %s\n", right ? "right" : "wrong", health.message().c_str());
        std::_Exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "right: the GPU cannot be used any more");
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
