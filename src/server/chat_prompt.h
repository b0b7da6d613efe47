// Messages to a prompt: shared by chat completions and /tokenize.
#pragma once

#include "server/generation_request.h"

namespace zipage::server {

// Reads messages, add_generation_prompt, continue_final_message, chat_template,
// chat_template_kwargs, documents, reasoning_effort and add_special_tokens.
Prompt read_chat_prompt(Fields& fields, const ModelContext& context);

}  // namespace zipage::server
