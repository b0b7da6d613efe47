#include "engine/start_checks.h"

#include <exception>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include "backend/registry/registry.h"
#include "engine/tiny_engine.h"
#include "support/forwarding_backend.h"

namespace zipage::testing_engine {
namespace {

// A CPU that can do the heads of a GPU.
class GpuHeads final : public testing::ForwardingBackend {
 public:
  GpuHeads() : ForwardingBackend(create_backend("cpu", {})) {}
  DeviceTraits traits() const override {
    DeviceTraits traits = inner().traits();
    traits.max_head_dim = 256;
    traits.head_dim_step = 4;
    traits.compression_head_dim_step = 16;
    traits.compression_rotary_dim_step = 16;
    return traits;
  }
};

template <class F>
std::string error_of(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

std::string heads_error(int32_t head_dim, int32_t rotary_dim, bool capped) {
  const GpuHeads backend;
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope.rotary_dim = rotary_dim;
  return error_of([&] { check_heads(config, backend, capped, "m"); });
}

TEST(StartChecks, HeadsThatAKernelCannotDoAreNamed) {
  EXPECT_EQ(heads_error(256, 256, true), "no error");
  EXPECT_EQ(heads_error(64, 16, true), "no error");
  EXPECT_NE(heads_error(260, 64, false)
                .find("m: head_dim 260: on cpu it must be a multiple of 4, at most 256"),
            std::string::npos);
  EXPECT_NE(heads_error(66, 66, false).find("head_dim 66"), std::string::npos);
  // Attention alone can do these.
  EXPECT_EQ(heads_error(72, 72, false), "no error");
  EXPECT_NE(heads_error(72, 64, true)
                .find("head_dim 72: on cpu it must be a multiple of 16 for a capped"),
            std::string::npos);
  EXPECT_NE(heads_error(64, 24, true).find("rotary dimension 24"), std::string::npos);
  EXPECT_EQ(heads_error(64, 24, false), "no error");
}

TEST(StartChecks, OptionsBeyondWhatNumbersHoldAreNamed) {
  const auto error_with = [](auto change) {
    EngineOptions options;
    options.model = std::string(1, 'm');
    change(options);
    return error_of([&] { check_options(options); });
  };
  EXPECT_EQ(error_with([](EngineOptions&) {}), "no error");
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 60}) {
    EXPECT_NE(error_with([&](EngineOptions& o) {
                o.kv_cache_memory_bytes = bytes;
              }).find(fmt::format("--kv-cache-memory: {}", bytes)),
              std::string::npos);
    EXPECT_NE(error_with([&](EngineOptions& o) {
                o.swap_space_bytes = bytes;
              }).find(fmt::format("--swap-space: {}", bytes)),
              std::string::npos);
  }
  // 2^31 positions and more do not fit a kernel's numbers, whatever each factor is.
  EXPECT_NE(error_with([](EngineOptions& o) {
              o.block_size = 256;
              o.num_gpu_blocks_override = int64_t{1} << 23;
            }).find("--num-gpu-blocks-override: 8388608 is not in [0, 8388607]"),
            std::string::npos);
}

TEST(StartChecks, ACacheBeyondTheFreeMemoryNamesItsFlags) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.num_gpu_blocks_override = 0;
  options.kv_cache_memory_bytes = int64_t{1} << 46;
  const std::string error = error_of([&] { make_engine(options); });
  EXPECT_NE(error.find("--kv-cache-memory, --num-gpu-blocks-override and --swap-space"),
            std::string::npos)
      << error;
  // Without a size it takes a stated share of what is free.
  options.kv_cache_memory_bytes = 0;
  std::string line;
  options.log = [&](const std::string&, const std::string& text) {
    if (text.find("KV cache memory: ") == 0) line = text;
  };
  EXPECT_NE(make_engine(options), nullptr);
  EXPECT_NE(line.find("25 % of what is free (--kv-cache-memory)"), std::string::npos) << line;
}

}  // namespace
}  // namespace zipage::testing_engine
