// Answers a list of prompts as one batch: submit them all, then run the engine until it is idle.
//
//   offline_batch models/reasoner-16m 'mul 1234*5678' 'mul 1425*3298'
#include <cstdio>
#include <string>
#include <utility>
#include <vector>
#include <zipage/engine.h>
#include <zipage/tokenizer.h>

namespace {

struct Answer {
  std::string text;
  int64_t num_tokens = 0;
  zipage::Status error;
};

// The prompt of a chat with one message, for models that have a template.
zipage::Result<std::vector<int32_t>> tokens_of(const zipage::Tokenizer& tokenizer,
                                               const std::string& question) {
  if (!tokenizer.has_chat_template()) return tokenizer.encode(question);
  // The questions here need no escapes; use a JSON library for others.
  const auto prompt =
      tokenizer.apply_chat_template("[{\"role\": \"user\", \"content\": \"" + question + "\"}]");
  if (!prompt.ok()) return prompt.status();
  return tokenizer.encode(prompt.value(), {.add_special_tokens = false});
}

int fail(const zipage::Status& status) {
  std::fprintf(stderr, "offline_batch: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: offline_batch MODEL QUESTION...\n");
    return 2;
  }
  zipage::EngineOptions options;
  options.model = argv[1];
  options.block_size = 64;
  options.compression.kv_budget = 512;  // entries kept per layer and KV head
  options.kv_cache_memory_bytes = int64_t{64} << 20;
  options.log = [](const std::string& level, const std::string& line) {
    std::fprintf(stderr, "%s: %s\n", level.c_str(), line.c_str());
  };
  auto created = zipage::Engine::create(options);
  if (!created.ok()) return fail(created.status());
  zipage::Engine& engine = **created;

  std::vector<Answer> answers(static_cast<size_t>(argc - 2));
  for (size_t i = 0; i < answers.size(); ++i) {
    auto tokens = tokens_of(engine.tokenizer(), argv[i + 2]);
    if (!tokens.ok()) return fail(tokens.status());
    zipage::Request request;
    request.prompt_token_ids = std::move(*tokens);
    request.sampling.temperature = 0;
    request.sampling.max_tokens.reset();  // up to the model's length
    Answer& answer = answers[i];          // outlives the engine's calls: the vector does not grow
    const auto id = engine.submit(std::move(request), [&](const zipage::RequestOutput& output) {
      answer.text += output.new_text;
      answer.num_tokens += static_cast<int64_t>(output.new_token_ids.size());
      if (output.finish_reason == zipage::FinishReason::kError) answer.error = output.error;
    });
    if (!id.ok()) return fail(id.status());
  }
  engine.run_until_idle();

  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].error.ok()) return fail(answers[i].error);
    std::printf("== %s (%lld tokens)\n%s\n", argv[i + 2],
                static_cast<long long>(answers[i].num_tokens), answers[i].text.c_str());
  }
  const zipage::EngineStats stats = engine.stats();
  std::printf("== %lld steps, %lld compressions, %lld entries evicted\n",
              static_cast<long long>(stats.steps), static_cast<long long>(stats.compressions),
              static_cast<long long>(stats.evicted_tokens));
  return 0;
}
