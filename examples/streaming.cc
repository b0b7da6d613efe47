// Streams answers while the engine runs on its own thread: each client thread reads its tokens from
// a queue that the engine's callback fills, and one of them has heard enough after a while.
//
//   streaming models/reasoner-16m
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zipage/engine.h>
#include <zipage/tokenizer.h>

namespace {

// What a callback may do: hand a piece over and return at once.
class Pieces {
 public:
  struct Piece {
    std::string text;
    zipage::FinishReason finish = zipage::FinishReason::kNone;
    std::string error;
  };
  void push(const zipage::RequestOutput& output) {  // the output is only lent: copy
    const std::lock_guard lock(mutex_);
    pieces_.push_back({output.new_text, output.finish_reason, output.error.message()});
    changed_.notify_one();
  }
  Piece pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !pieces_.empty(); });
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
};

// One client: asks, reads, and gives up after `patience` pieces (0: never).
bool ask(zipage::Engine& engine,
         const std::string& name,
         const std::string& question,
         int patience) {
  const auto prompt = engine.tokenizer().apply_chat_template(
      "[{\"role\": \"user\", \"content\": \"" + question + "\"}]");
  if (!prompt.ok()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), prompt.status().message().c_str());
    return false;
  }
  zipage::Request request;
  request.prompt_token_ids =
      engine.tokenizer().encode(prompt.value(), {.add_special_tokens = false});
  request.external_id = name;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 2000;
  Pieces pieces;  // outlives the request: this function returns after its last output
  const auto id = engine.submit(
      std::move(request), [&pieces](const zipage::RequestOutput& output) { pieces.push(output); });
  if (!id.ok()) {  // what can never run, or a full queue
    std::fprintf(stderr, "%s: %s\n", name.c_str(), id.status().message().c_str());
    return false;
  }
  std::string line;
  for (int count = 1;; ++count) {
    const Pieces::Piece piece = pieces.pop();
    line += piece.text;
    for (size_t end; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1))
      std::printf("%s| %s\n", name.c_str(), line.substr(0, end).c_str());
    if (count == patience)
      engine.abort(id.value());  // from any thread; a last output with kAbort follows
    if (piece.finish == zipage::FinishReason::kNone) continue;
    std::printf("%s| %s\n%s: finished by %s %s\n", name.c_str(), line.c_str(), name.c_str(),
                zipage::to_string(piece.finish), piece.error.c_str());
    return piece.finish != zipage::FinishReason::kError;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: streaming MODEL\n");
    return 2;
  }
  zipage::EngineOptions options;
  options.model = argv[1];
  options.kv_cache_memory_bytes = int64_t{64} << 20;
  auto created = zipage::Engine::create(options);
  if (!created.ok()) {
    std::fprintf(stderr, "streaming: %s\n", created.status().message().c_str());
    return 1;
  }
  zipage::Engine& engine = **created;
  engine.start();
  bool ok[3] = {};
  std::vector<std::thread> clients;
  clients.emplace_back([&] { ok[0] = ask(engine, "ann", "mul 1234*5678", 0); });
  clients.emplace_back([&] { ok[1] = ask(engine, "bob", "mul 9182*7364", 0); });
  clients.emplace_back([&] { ok[2] = ask(engine, "eve", "mul 5555*4321", 20); });
  for (std::thread& client : clients) client.join();
  engine.stop();
  return ok[0] && ok[1] && ok[2] ? 0 : 1;
}
