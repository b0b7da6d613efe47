// Clients of others, against the embedded model.
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "zipage/engine.h"

#include "server/server.h"
#include "support/judge.h"

namespace zipage::server {
namespace {

TEST(Server, RealClientsAreServed) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  ServerOptions options;
  options.port = 0;
  options.api_keys = {"first", "sesame"};
  options.served_model_names = {"reasoner"};
  options.reasoning_parser = "qwen3";
  std::string log;
  options.log = [&](const std::string& level, const std::string& line) {
    if (level == "error") log += line + "\n";
  };
  Server server(options);
  EngineOptions engine_options;
  engine_options.model = std::string(ZIPAGE_SOURCE_DIR) + "/models/reasoner-16m";
  engine_options.device = "cpu";
  engine_options.dtype = "float32";
  engine_options.num_threads = 2;
  engine_options.kv_cache_memory_bytes = int64_t{256} << 20;
  engine_options.block_size = 64;
  engine_options.step_done = server.step_done();
  auto engine = Engine::create(engine_options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  engine.value()->start();
  server.set_engine(*engine.value());
  std::thread io([&] { server.run(); });
  const test::TempFolder folder;
  std::ofstream(folder.file("port.txt")) << server.port();
  const std::string complaint = test::run_judge("server/judge_clients.py", folder);
  server.stop();
  io.join();
  engine.value()->stop();
  EXPECT_EQ(complaint, "");
  EXPECT_EQ(log, "");
}

}  // namespace
}  // namespace zipage::server
