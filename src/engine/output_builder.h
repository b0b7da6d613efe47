// Turns a sampled token into a RequestOutput: text, stop conditions, log-probabilities.
#pragma once

#include "engine/model_runner.h"
#include "engine/sequence.h"

namespace zipage {

// Puts sample `index` in the place that the sequence holds for it and fills `output` (which is
// reused: nothing of an earlier call remains). output.finished() says whether the sequence has
// ended.
void deliver_sample(EngineSequence& sequence,
                    const StepSamples& samples,
                    size_t index,
                    RequestOutput& output);

// Appends `count` scores from `index` on to the sequence's prompt_logprobs.
void keep_scores(EngineSequence& sequence, const StepSamples& scores, size_t index, int32_t count);

// Empties `output` and writes the sequence's identity: for ends without a token.
void begin_output(const EngineSequence& sequence, RequestOutput& output);

}  // namespace zipage
