// Flags from a YAML file, from ZIPAGE_* and from the command line: the nearer one wins.
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/engine_flags.h"
#include "support/errors.h"
#include "support/files.h"

namespace zipage::cli {
namespace {

using test::expect_error;

class ConfigTest : public testing::Test {
 protected:
  ~ConfigTest() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  void set_env(const std::string& name, const std::string& value) {
    names_.push_back(name);
    setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<EngineOptions> grid(const std::string& yaml,
                                  std::vector<std::string> arguments = {}) {
    CLI::App app;
    EngineFlags flags;
    CLI::App* command = app.add_subcommand("run", "");
    flags.add_to(*command);
    std::vector<std::string> words = {"run"};
    if (!yaml.empty()) {
      words.push_back("--config");
      words.push_back(folder_.write("c.yaml", yaml));
    }
    words.insert(words.end(), arguments.begin(), arguments.end());
    read_numbers_as_decimal(app);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    apply_config_files(app);
    return flags.option_grid();
  }
  EngineOptions options(const std::string& yaml, std::vector<std::string> arguments = {}) {
    return grid(yaml, std::move(arguments)).front();
  }

  const test::TempFolder folder_;
  std::vector<std::string> names_;
};

TEST_F(ConfigTest, EveryKindOfFlagCanStandInAFile) {
  const EngineOptions o = options(
      "model: m\n--block-size: 64\nkv_budget: 512\nkv-policy: paper\nkv-cache-memory: 64MiB\n"
      "derotate: true\nenable-prefix-caching: false\nscore-decay: 0.5\nkv-trace: t.kvt\n");
  EXPECT_EQ(o.model, "m");
  EXPECT_EQ(o.block_size, 64);
  EXPECT_EQ(o.compression.kv_budget, 512);
  EXPECT_EQ(o.compression.kv_policy, KvPolicy::kPaper);
  EXPECT_EQ(o.kv_cache_memory_bytes, 64 << 20);
  EXPECT_TRUE(o.compression.derotate);
  EXPECT_FALSE(o.enable_prefix_caching);
  EXPECT_EQ(o.compression.score_decay, 0.5);
  EXPECT_EQ(o.kv_trace, "t.kvt");
}

// Scripts pad numbers: 010 is ten and not eight, wherever it stands.
TEST_F(ConfigTest, NumbersAreDecimal) {
  EXPECT_EQ(options("model: m\nblock-size: 064\n").block_size, 64);
  EXPECT_EQ(options("model: m\n", {"--block-size", "0128"}).block_size, 128);
  EXPECT_EQ(options("model: m\n", {"--block-size", "008"}).block_size, 8);
  EXPECT_EQ(options("model: m\n", {"-t", "0"}).num_threads, 0);
  EXPECT_EQ(options("model: m\n", {"-t", "00"}).num_threads, 0);
  EXPECT_EQ(options("model: m\n", {"--score-decay", "00.5"}).compression.score_decay, 0.5);
  set_env("ZIPAGE_MAX_NUM_SEQS", "017");
  EXPECT_EQ(options("model: m\n").max_num_seqs, 17);
}

TEST_F(ConfigTest, AListIsThatOfCommas) {
  EXPECT_EQ(grid("model: m\nkv-budget: [full, 512, 256]\nkv-policy: [peak, paper]\n").size(), 5u);
}

TEST_F(ConfigTest, TheCommandLineWinsOverTheEnvironmentAndThatOverTheFile) {
  set_env("ZIPAGE_BLOCK_SIZE", "128");
  set_env("ZIPAGE_KV_TRACE", "env.kvt");
  const std::string yaml = "model: m\nblock-size: 64\nkv-trace: file.kvt\nmax-num-seqs: 7\n";
  const EngineOptions o = options(yaml, {"--kv-trace", "line.kvt"});
  EXPECT_EQ(o.kv_trace, "line.kvt");
  EXPECT_EQ(o.block_size, 128);
  EXPECT_EQ(o.max_num_seqs, 7);
  EXPECT_EQ(options(yaml).kv_trace, "env.kvt");
}

TEST_F(ConfigTest, MistakesNameTheFileAndTheKey) {
  const auto refused = [&](const std::string& yaml, const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    all.push_back("c.yaml");
    expect_error(StatusCode::kInvalidArgument, all, [&] { options(yaml); });
  };
  refused("block-sise: 64\n", {"block-sise", "not a flag of 'zipage run'"});
  refused("block-size: many\n", {"block-size", "many"});
  refused("block-size: [1, 2]\n", {"block-size"});
  refused("block-size: {a: 1}\n", {"block-size"});
  refused("config: other.yaml\n", {"config"});
  refused("derotate: perhaps\n", {"derotate"});
  refused("- block-size\n", {"mapping"});
  refused("block-size: [1\n", {});
  expect_error(StatusCode::kNotFound, {"--config", "/nonexistent.yaml"}, [&] {
    options("", {"--config", "/nonexistent.yaml"});
  });
}

TEST_F(ConfigTest, AWrongVariableIsNamed) {
  set_env("ZIPAGE_BLOCK_SIZE", "many");
  try {
    options("model: m\n");
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("block-size"));
  }
}

}  // namespace
}  // namespace zipage::cli
