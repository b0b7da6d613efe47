// Answers and streams, through the handlers and without sockets.
#include <map>

#include "server/service_fixture.h"
#include "server/text_offsets.h"

namespace zipage::testing_server {
namespace {

class Generations : public ServiceTest {};

TEST_F(Generations, CompletionAnswer) {
  const Answer answer = complete(R"("prompt":"abc","max_tokens":10,"request_id":"q")");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value v = answer.parsed();
  EXPECT_EQ(v.at("id"), "cmpl-q");
  EXPECT_EQ(v.at("object"), "text_completion");
  EXPECT_EQ(v.at("model"), "fake");
  const json::value& choice = v.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "hello");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("stop_reason").is_null());
  EXPECT_EQ(v.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(v.at("usage").at("completion_tokens"), 6);
  EXPECT_EQ(v.at("usage").at("total_tokens"), 9);
  EXPECT_EQ(service->num_generations(), 0u);
  EXPECT_EQ(service->num_unfinished_sequences(), 0);
}

TEST_F(Generations, ListPromptsAndNAreIndexedByPrompt) {
  const Answer answer = complete(R"("prompt":[[65],[66,67]],"n":2,"max_tokens":2)");
  const json::value v = answer.parsed();
  ASSERT_EQ(v.at("choices").as_array().size(), 4u);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(v.at("choices").at(static_cast<size_t>(i)).at("index"), i);
    EXPECT_EQ(v.at("choices").at(static_cast<size_t>(i)).at("finish_reason"), "length");
  }
  EXPECT_EQ(v.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(v.at("usage").at("completion_tokens"), 8);
  ASSERT_EQ(engine.requests.size(), 2u);
  EXPECT_EQ(engine.requests[1].prompt_token_ids, (std::vector<int32_t>{66, 67}));
}

TEST_F(Generations, ChatStream) {
  const Answer answer = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(answer.status, 200);
  EXPECT_NE(answer.head.find("Content-Type: text/event-stream"), std::string::npos);
  const auto list = events(answer);
  ASSERT_GE(list.size(), 3u);
  EXPECT_EQ(list[0].at("object"), "chat.completion.chunk");
  EXPECT_EQ(list[0].at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(list[0].at("choices").at(0).at("delta").at("content"), "");
  std::string text;
  for (size_t i = 1; i + 1 < list.size(); ++i) {
    EXPECT_TRUE(list[i].at("usage").is_null());
    const auto& delta = list[i].at("choices").at(0).at("delta").as_object();
    if (const auto* content = delta.if_contains("content")) text += content->as_string();
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(list[list.size() - 2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(list.back().at("choices").as_array().empty());
  EXPECT_EQ(list.back().at("usage").at("completion_tokens"), 6);
}

TEST_F(Generations, OnePostAStepWhateverTheNumberOfSequences) {
  send("POST", "/v1/completions", R"({"prompt":["a","b","c"],"n":4,"stream":true})");
  for (int i = 1; i <= 4; ++i) {
    engine.step();
    EXPECT_EQ(num_posts, i);
    run_tasks();
  }
  // The io thread is behind: what is posted already is enough.
  engine.step();
  engine.step();
  EXPECT_EQ(num_posts, 5);
  finish();
}

TEST_F(Generations, EchoStandsInFront) {
  const Answer answer = complete(R"("prompt":"abc","echo":true)");
  EXPECT_EQ(answer.parsed().at("choices").at(0).at("text"), "abchello");
  const Answer only = complete(R"("prompt":"abc","echo":true,"max_tokens":0)");
  EXPECT_EQ(only.parsed().at("choices").at(0).at("text"), "abc");
  EXPECT_EQ(only.parsed().at("usage").at("completion_tokens"), 0);
  const auto stream = events(complete(R"("prompt":"abc","echo":true,"stream":true)"));
  EXPECT_EQ(stream[0].at("choices").at(0).at("text"), "abch");
}

TEST_F(Generations, EchoWithLogprobsAsLmEvalReadsThem) {
  for (const char* tokens : {"1", "0"}) {
    const Answer answer = complete(std::string(R"("prompt":"abc","echo":true,"logprobs":2,)") +
                                   R"("max_tokens":)" + tokens);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::value v = answer.parsed();
    const json::value& choice = v.at("choices").at(0);
    const json::value& logprobs = choice.at("logprobs");
    const bool one = *tokens == '1';
    EXPECT_EQ(choice.at("text"), one ? "abch" : "abc");
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(json::serialize(logprobs.at("tokens")),
              one ? R"(["a","b","c","h"])" : R"(["a","b","c"])");
    EXPECT_EQ(json::serialize(logprobs.at("text_offset")), one ? "[0,1,2,3]" : "[0,1,2]");
    EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
    EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
    EXPECT_EQ(logprobs.at("token_logprobs").at(1).as_double(), -0.5);
    EXPECT_EQ(json::serialize(logprobs.at("top_logprobs").at(1)), R"({"A":-2.5E-1,"b":-5E-1})");
    EXPECT_EQ(v.at("usage").at("completion_tokens"), one ? 1 : 0);
    EXPECT_FALSE(choice.as_object().contains("prompt_logprobs")) << "nobody asked for them";
    if (one) {
      EXPECT_EQ(logprobs.at("token_logprobs").at(3).as_double(), -0.25);
    }
  }
  const json::value none =
      complete(R"("prompt":"ab","echo":true,"logprobs":0,"max_tokens":0)").parsed();
  const json::value& logprobs = none.at("choices").at(0).at("logprobs");
  EXPECT_EQ(json::serialize(logprobs.at("top_logprobs")), "[null,null]");
  EXPECT_EQ(logprobs.at("token_logprobs").at(1).as_double(), -0.5);
}

TEST_F(Generations, EchoWithLogprobsIsTheSameForEachAnswerAndInAStream) {
  const std::string fields =
      R"("prompt":[[97,98,99],[66,67]],"echo":true,"logprobs":1,"max_tokens":2,"n":2)";
  const json::value whole = complete(fields).parsed();
  std::map<int64_t, json::array> tokens, values, tops, offsets;
  std::map<int64_t, std::string> texts;
  for (const json::value& event : events(complete(fields + R"(,"stream":true)"))) {
    const json::value& choice = event.at("choices").at(0);
    const int64_t index = choice.at("index").as_int64();
    texts[index] += std::string(choice.at("text").as_string());
    const auto add = [&](json::array& to, const char* name) {
      for (const json::value& x : choice.at("logprobs").at(name).as_array()) to.push_back(x);
    };
    add(tokens[index], "tokens");
    add(values[index], "token_logprobs");
    add(tops[index], "top_logprobs");
    add(offsets[index], "text_offset");
  }
  ASSERT_EQ(texts.size(), 4u);
  for (int64_t i = 0; i < 4; ++i) {
    const json::value& choice = whole.at("choices").at(static_cast<size_t>(i));
    const json::value& logprobs = choice.at("logprobs");
    EXPECT_EQ(choice.at("text"), i < 2 ? "abche" : "BChe");
    EXPECT_EQ(logprobs.at("tokens").as_array().size(), i < 2 ? 5u : 4u);
    EXPECT_EQ(texts[i], choice.at("text").as_string());
    EXPECT_EQ(tokens[i], logprobs.at("tokens").as_array());
    EXPECT_EQ(values[i], logprobs.at("token_logprobs").as_array());
    EXPECT_EQ(tops[i], logprobs.at("top_logprobs").as_array());
    EXPECT_EQ(offsets[i], logprobs.at("text_offset").as_array());
  }
}

TEST_F(Generations, PromptLogprobsInVllmsShape) {
  const json::value v =
      complete(R"("prompt":"ab","prompt_logprobs":1,"max_tokens":1,"n":2)").parsed();
  const char* const kWanted = R"([null,{"98":{"logprob":-5E-1,"rank":2,"decoded_token":"b"},)"
                              R"("65":{"logprob":-2.5E-1,"rank":1,"decoded_token":"A"}}])";
  for (const size_t i : {0, 1})
    EXPECT_EQ(json::serialize(v.at("choices").at(i).at("prompt_logprobs")), kWanted);
  EXPECT_TRUE(v.at("choices").at(0).at("logprobs").is_null());
  const json::value talk =
      chat(R"("prompt_logprobs":0,"max_completion_tokens":1)").parsed().at("prompt_logprobs");
  EXPECT_GT(talk.as_array().size(), 10u);
  EXPECT_TRUE(talk.at(0).is_null());
  EXPECT_EQ(talk.at(1).as_object().size(), 1u);
  // With an echo of more alternatives each field has its own number.
  const json::value both =
      complete(R"("prompt":"ab","prompt_logprobs":0,"echo":true,"logprobs":2,"max_tokens":0)")
          .parsed();
  EXPECT_EQ(both.at("choices").at(0).at("prompt_logprobs").at(1).as_object().size(), 1u);
  EXPECT_EQ(both.at("choices").at(0).at("logprobs").at("top_logprobs").at(1).as_object().size(),
            2u);
  EXPECT_EQ(complete(R"("prompt":"ab","prompt_logprobs":21)").error("param"), "prompt_logprobs");
  EXPECT_EQ(complete(R"("prompt":"ab","prompt_logprobs":1,"stream":true)").error("param"),
            "prompt_logprobs");
}

// Clients index text by characters, also where a token is half of one.
TEST_F(Generations, TextOffsetsCountCharacters) {
  engine.answer = "\xC3\xBC.";
  const json::value v =
      complete(R"("prompt":"g\u00fc\ud83d\ude42!","echo":true,"logprobs":0,"max_tokens":3)")
          .parsed();
  const json::value& choice = v.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "g\xC3\xBC\xF0\x9F\x99\x82!\xC3\xBC.");
  EXPECT_EQ(json::serialize(choice.at("logprobs").at("text_offset")), "[0,1,1,2,2,2,2,3,4,4,5]");
  server::TextOffsets offsets;
  std::vector<int64_t> found;
  for (const char* bytes : {"ab", "", "\xC3", "x", "\x82", "\xE2\x82",
                            "\xAC"
                            "c",
                            "d"})
    found.push_back(offsets.add(bytes));
  // A broken character counts one, as the U+FFFD that stands for it.
  EXPECT_EQ(found, (std::vector<int64_t>{0, 2, 2, 2, 4, 5, 5, 7}));
}

TEST_F(Generations, LogprobsOfChat) {
  const Answer answer = chat(R"("logprobs":true,"top_logprobs":2,"max_tokens":1)");
  const json::value v = answer.parsed();
  const json::value& entry = v.at("choices").at(0).at("logprobs").at("content").at(0);
  EXPECT_EQ(entry.at("token"), "h");
  EXPECT_EQ(entry.at("logprob").as_double(), -0.25);
  EXPECT_EQ(json::serialize(entry.at("bytes")), "[104]");
  EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(chat(R"("top_logprobs":2)").error("param"), "top_logprobs");
  const json::value ids =
      chat(R"("logprobs":true,"return_tokens_as_token_ids":true,"max_tokens":1)").parsed();
  EXPECT_EQ(ids.at("choices").at(0).at("logprobs").at("content").at(0).at("token"), "token_id:104");
}

TEST_F(Generations, ThoughtIsSplitFromAnswer) {
  ServerOptions options;
  options.reasoning_parser = "qwen3";
  make_service(options);
  engine.answer = "<think>I see</think>four";
  const json::value v = chat("").parsed();
  const json::value& message = v.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content"), "four");
  EXPECT_EQ(message.at("reasoning"), "I see");
  EXPECT_EQ(message.at("reasoning_content"), "I see");
  const json::value without = chat(R"("include_reasoning":false)").parsed();
  EXPECT_FALSE(without.at("choices").at(0).at("message").as_object().contains("reasoning"));
  // The template opened the thought.
  engine.bytes.generation_suffix = "<think>\n";
  engine.answer = "I see</think>four";
  std::string thought, text;
  for (const json::value& event : events(chat(R"("stream":true)"))) {
    const auto& delta = event.at("choices").at(0).at("delta").as_object();
    if (const auto* part = delta.if_contains("reasoning")) thought += part->as_string();
    if (const auto* part = delta.if_contains("content")) text += part->as_string();
  }
  EXPECT_EQ(thought, "I see");
  EXPECT_EQ(text, "four");
}

TEST_F(Generations, ClientGoneAbortsWithinAStep) {
  const auto turn = send("POST", "/v1/completions", R"({"prompt":["a","b"],"stream":true})");
  engine.step();
  run_tasks();
  turn->abandon();
  EXPECT_EQ(engine.aborted.size(), 2u);
  engine.step();
  run_tasks();
  EXPECT_EQ(engine.stats().num_running, 0);
  EXPECT_EQ(service->num_generations(), 0u);
  EXPECT_EQ(service->num_unfinished_sequences(), 0);
}

TEST_F(Generations, SlowReaderIsDroppedAtItsBound) {
  engine.answer = std::string(4000, 'x');
  server::TurnOptions options;
  options.max_buffered_bytes = 16 << 10;
  const auto turn = send("POST", "/v1/completions",
                         R"({"prompt":"a","stream":true,"max_tokens":4000})", {}, options);
  int steps = 0;
  while (engine.step()) {
    run_tasks();
    ++steps;
  }
  run_tasks();
  EXPECT_LT(steps, 100);
  EXPECT_TRUE(turn->abandoned());
  EXPECT_EQ(engine.aborted.size(), 1u);
  EXPECT_EQ(service->num_generations(), 0u);
}

TEST_F(Generations, AStepOfManyChunksIsNotASlowReader) {
  server::TurnOptions options;
  options.max_buffered_bytes = 4 << 10;
  const auto turn =
      send("POST", "/v1/completions", R"({"prompt":"a","n":64,"stream":true})", {}, options);
  std::string bytes;
  for (bool more = true; more;) {
    more = engine.step();
    run_tasks();
    bytes += turn->take_output();  // a client that keeps up
  }
  EXPECT_TRUE(turn->finished());
  EXPECT_EQ(events(parse_answer(bytes)).size(), 64u * 6);
}

TEST_F(Generations, RefusalOfALaterPromptAbortsTheEarlier) {
  const Answer answer = complete(R"("prompt":[[65],[]])");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "prompt");
  EXPECT_EQ(engine.aborted.size(), 1u);
  EXPECT_EQ(service->num_generations(), 0u);
  EXPECT_EQ(service->num_unfinished_sequences(), 0);
}

TEST_F(Generations, FullQueueIs429) {
  ServerOptions options;
  options.limits.max_queued_requests = 2;
  make_service(options);
  const auto first = send("POST", "/v1/completions", R"({"prompt":["a","b"]})");
  const auto second = send("POST", "/v1/completions", R"({"prompt":"c"})");
  const Answer refused = parse_answer(second->take_output());
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  finish();
  EXPECT_EQ(complete(R"("prompt":"c")").status, 200);
  engine.refusal = Status(StatusCode::kResourceExhausted, "the queue is full");
  EXPECT_EQ(complete(R"("prompt":"c")").status, 429);
}

TEST_F(Generations, TokenIdsAndTruncation) {
  const json::value v =
      complete(R"("prompt":"abcd","truncate_prompt_tokens":2,"return_token_ids":true)").parsed();
  EXPECT_EQ(json::serialize(v.at("choices").at(0).at("prompt_token_ids")), "[99,100]");
  EXPECT_EQ(json::serialize(v.at("choices").at(0).at("token_ids")), "[104,101,108,108,111,256]");
}

}  // namespace
}  // namespace zipage::testing_server
