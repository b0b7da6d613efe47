// A delta's quick text says what its object says.
#include "server/answer.h"

#include "server/service_fixture.h"

namespace zipage::testing_server {
namespace {

TEST(Answer, DeltaTextIsTheObject) {
  const ByteTokenizer tokenizer;
  const server::Prompt prompt{{1, 2}, "ab"};
  const std::vector<std::vector<TokenLogprob>> none;
  const std::vector<std::string> texts{"", "plain", "\"quoted\" \\ \n\t\x01\x7f",
                                       "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"};
  int count = 0;
  for (const bool chat : {false, true}) {
    for (const bool ids : {false, true}) {
      for (const bool logprobs : {false, true}) {
        for (const FinishReason reason : {FinishReason::kNone, FinishReason::kStop}) {
          for (const std::string& text : texts) {
            for (const std::string& reasoning : texts) {
              server::GenerationRequest request;
              request.chat = chat;
              request.stream = true;
              request.return_token_ids = ids;
              request.with_logprobs = logprobs;
              request.sampling.stop = {"x"};
              server::Piece piece;
              piece.text = text;
              piece.reasoning = chat ? reasoning : "";
              piece.token_ids = {65};
              piece.logprobs = {{{65, -0.5f, 1}}};
              const std::string stop = reason == FinishReason::kStop ? "x" : "";
              const auto shown = [&](auto&& show) {
                server::TextOffsets offsets;
                return show(server::ChoiceView{.request = request,
                                               .prompt = prompt,
                                               .tokenizer = tokenizer,
                                               .index = 3,
                                               .piece = piece,
                                               .finish_reason = reason,
                                               .stop_reason = stop,
                                               .offsets = offsets,
                                               .echo = {},
                                               .echoed_logprobs = none});
              };
              const auto as_text = [](const server::ChoiceView& v) { return delta_text(v); };
              const auto as_object = [](const server::ChoiceView& v) {
                return json::value(choice_json(v, true));
              };
              EXPECT_EQ(json::parse(shown(as_text)), shown(as_object)) << shown(as_text);
              ++count;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(count, 256);
}

}  // namespace
}  // namespace zipage::testing_server
