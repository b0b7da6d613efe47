// Clients of others, against the embedded model.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <thread>

#include "zipage/engine.h"

#include "server/server.h"
#include "support/judge.h"
#include "support/source.h"

namespace zipage::server {
namespace {

class RealClients : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.port = 0;
    options.api_keys = {"first", "sesame"};
    options.served_model_names = {"reasoner"};
    options.reasoning_parser = "qwen3";
    options.limits.max_queued_requests = 16;
    options.log = [this](const std::string& level, const std::string& line) {
      if (level == "error") log_ += line + "\n";
    };
    server_ = std::make_unique<Server>(options);
    EngineOptions engine_options;
    engine_options.model = test::source_path("models/reasoner-16m");
    engine_options.device = "cpu";
    engine_options.dtype = "float32";
    engine_options.num_threads = 2;
    engine_options.kv_cache_memory_bytes = int64_t{256} << 20;
    engine_options.block_size = 64;
    engine_options.step_done = server_->step_done();
    auto engine = Engine::create(engine_options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
    engine_->start();
    server_->set_engine(*engine_);
    io_ = std::thread([this] { server_->run(); });
    std::ofstream(folder_.file("port.txt")) << server_->port();
    std::ofstream(folder_.file("model.txt")) << engine_options.model;
  }
  void TearDown() override {
    if (!io_.joinable()) return;
    server_->stop();
    io_.join();
    engine_->stop();
    EXPECT_EQ(log_, "");
  }

  const test::TempFolder folder_;
  std::string log_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
  std::thread io_;
};

TEST_F(RealClients, OpenaiAndHttpx) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  EXPECT_EQ(test::run_judge("server/judge_clients.py", folder_), "");
}

TEST_F(RealClients, LmEval) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  EXPECT_EQ(test::run_judge("server/judge_lm_eval.py", folder_), "");
}

TEST_F(RealClients, WrkOnHealth) {
  if (std::system("command -v wrk >/dev/null") != 0)
    GTEST_SKIP() << "wrk is not installed (script/setup --test)";
  const std::string report = folder_.file("wrk.txt");
  const std::string command =
      "wrk -t2 -c32 -d1s http://127.0.0.1:" + std::to_string(server_->port()) + "/health > '" +
      report + "' 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << test::read_file(report);
  const std::string text = test::read_file(report);
  std::smatch rate;
  ASSERT_TRUE(std::regex_search(text, rate, std::regex("Requests/sec:\\s*([0-9.]+)"))) << text;
  EXPECT_GT(std::stod(rate[1]), 500) << text;
  EXPECT_EQ(text.find("Non-2xx"), std::string::npos) << text;
  EXPECT_EQ(text.find("Socket errors"), std::string::npos) << text;
}

}  // namespace
}  // namespace zipage::server
