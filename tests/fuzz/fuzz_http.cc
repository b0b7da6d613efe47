// Bytes of a connection: requests are read, routed and answered, or refused; nothing is left over.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/fake_engine.h"
#include "server/service.h"

namespace {

using namespace zipage;

struct World {
  testing_server::FakeEngine engine;
  std::vector<std::function<void()>> tasks;
  server::Service service;

  World()
      : service(options(),
                [this](std::function<void()> task) { tasks.push_back(std::move(task)); }) {
    engine.step_done = [this] { service.step_done(); };
    service.set_engine(engine);
  }
  static server::ServerOptions options() {
    server::ServerOptions o;
    o.reasoning_parser = "qwen3";
    o.cors.allowed_origins = {"*"};
    o.limits.read = {.max_header_bytes = 2048, .max_body_bytes = 8192};
    return o;
  }
  void settle() {
    for (int i = 0; i < 64; ++i) {
      const bool more = engine.step();
      for (size_t t = 0; t < tasks.size(); ++t) tasks[t]();
      tasks.clear();
      if (!more) break;
    }
    service.abort_all();
    engine.step();
    for (size_t t = 0; t < tasks.size(); ++t) tasks[t]();
    tasks.clear();
    if (service.num_generations() != 0 || service.num_unfinished_sequences() != 0) __builtin_trap();
    engine.requests.clear();
    engine.aborted.clear();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  while (!input.empty()) {
    server::RequestReader reader(world.service.options().limits.read);
    input.remove_prefix(reader.feed(input));
    auto turn = std::make_shared<server::Turn>(server::TurnOptions{}, [] {});
    if (reader.head_ready() && !world.service.refuse_head(reader.head(), turn)) {
      reader.accept_body(world.service.max_body_bytes());
      input.remove_prefix(reader.feed(input));
    }
    if (turn->started()) {
      // Refused by its headers.
    } else if (reader.error().status != 0) {
      world.service.handle_unreadable(reader.error(), turn);
    } else if (reader.done()) {
      world.service.handle(reader.take(), turn);
    } else {
      break;
    }
    world.settle();
    if (!turn->finished() && !turn->abandoned()) __builtin_trap();
    if (!turn->keep_alive() || turn->abandoned()) break;
  }
  return 0;
}
