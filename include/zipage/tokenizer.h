// Text to token ids and back, and chat messages to prompts. Implemented in src/tokenizer.
//
//   auto tokenizer = Tokenizer::load("models/reasoner-16m");
//   std::vector<int32_t> ids = tokenizer.value()->encode("mul 1234*5678");
//
// Threads: const members of a Tokenizer may be called from any thread. An IncrementalDecoder
// belongs to one sequence and one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zipage/status.h"

namespace zipage {

// Turns the ids of one sequence into text as they come. Never emits part of a UTF-8 character.
class IncrementalDecoder {
 public:
  virtual ~IncrementalDecoder() = default;
  // Returns the text that `id` completes; may be empty.
  virtual std::string push(int32_t id) = 0;
  // Returns what is left at the end. Bytes that are not UTF-8 become U+FFFD.
  virtual std::string finish() = 0;
};

struct EncodeOptions {
  // Add BOS and the like, as the tokenizer's post-processor says.
  bool add_special_tokens = true;
  // Turn the text of a special token, such as "<|im_end|>", into its id.
  bool parse_special_tokens = true;
};

// The form in which a chat template is handed the content of messages. kAuto: what it is found to
// read; where it reads both, as the caller wrote it.
enum class ChatContentFormat {
  kAuto,
  kString,  // a string; parts are joined with line ends
  kOpenai,  // a list of {"type": "text", "text": ...}
};
// "auto", "string" or "openai".
Result<ChatContentFormat> parse_chat_content_format(std::string_view name);

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  // A Jinja template. Empty: the model's own.
  std::string chat_template;
  // A JSON object of extra template variables. Empty: none.
  std::string template_kwargs;
  // A JSON array of tool definitions. Empty: none.
  std::string tools;
  // How the template is handed the content of messages.
  ChatContentFormat content_format = ChatContentFormat::kAuto;
};

class Tokenizer {
 public:
  // Loads `path`: a folder with tokenizer.json (and tokenizer_config.json), or a GGUF file.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& path);
  virtual ~Tokenizer() = default;

  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;
  virtual std::string decode(std::span<const int32_t> ids,
                             bool skip_special_tokens = true) const = 0;
  virtual std::unique_ptr<IncrementalDecoder> new_decoder(
      bool skip_special_tokens = true) const = 0;

  // The largest id plus one.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // The token as the vocabulary file writes it. Empty if the id is unknown.
  virtual std::string id_to_token(int32_t id) const = 0;
  // The bytes that the token adds to the text.
  virtual std::string id_to_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;

  // What the user should know although the tokenizer works: a file that does not say how text is
  // cut, a token without an id. One sentence each.
  virtual std::vector<std::string> warnings() const { return {}; }

  virtual bool has_chat_template() const = 0;
  // The source of the model's chat template as its files have it; empty when there is none.
  virtual std::string chat_template() const { return {}; }
  // Renders a prompt. `messages_json` is a JSON array of objects {"role", "content", ...}.
  virtual Result<std::string> apply_chat_template(const std::string& messages_json,
                                                  const ChatOptions& options = {}) const = 0;
};

}  // namespace zipage
