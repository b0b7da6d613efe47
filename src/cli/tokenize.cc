// zipage tokenize MODEL -p TEXT: ids and pieces of a text.
#include <cstdio>
#include <memory>

#include "zipage/tokenizer.h"

#include "cli/command.h"

namespace zipage::cli {
namespace {

struct TokenizeCommand {
  std::string model, text;
  bool ids_only = false, no_specials = false;

  int run() {
    const auto tokenizer = value_or_fail(Tokenizer::load(model));
    for (const std::string& warning : tokenizer->warnings())
      std::fprintf(stderr, "warning: %s\n", warning.c_str());
    for (const int32_t id : tokenizer->encode(text, {.add_special_tokens = !no_specials})) {
      if (ids_only) {
        std::printf("%d ", id);
      } else {
        std::printf("%8d  %s\n", id, tokenizer->id_to_token(id).c_str());
      }
    }
    if (ids_only) std::printf("\n");
    return kExitOk;
  }
};

}  // namespace

void add_tokenize_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<TokenizeCommand>();
  CLI::App* sub = app.add_subcommand("tokenize", "Show the tokens of a text");
  sub->add_option("MODEL", command->model, "Model folder or GGUF file")->required();
  sub->add_option("-p,--prompt", command->text, "The text")->required();
  sub->add_flag("--ids", command->ids_only, "Only the ids, on one line");
  sub->add_flag("--no-special-tokens", command->no_specials, "Do not add BOS and the like");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
