// zipage chat, typed at on a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "cli/program.h"
#include "cli/terminal.h"

namespace zipage::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> chat_command() {
  return {ZIPAGE_PROGRAM,
          "chat",
          kModel,
          "--temp",
          "0",
          "--log-level",
          "error",
          "--kv-cache-memory",
          "64MiB",
          "--kv-budget",
          "512",
          "--block-size",
          "64"};
}

// The text between the echo of a question and the prompt after its answer.
std::string answer_to(Terminal& terminal, const std::string& question, int* num_pieces = nullptr) {
  terminal.type(question + "\n");
  terminal.read_until(question + "\r\n");
  return terminal.read_until("\n> ", num_pieces);
}

TEST(ChatTest, StreamsForgetsAndLeaves) {
  Terminal terminal(chat_command());
  EXPECT_THAT(terminal.read_until("> "), HasSubstr("/reset"));
  int num_pieces = 0;
  const std::string first = answer_to(terminal, "mul 1234*5678", &num_pieces);
  EXPECT_THAT(first, HasSubstr("boxed{7006652}"));
  EXPECT_GT(num_pieces, 20);  // as it is made, not at its end
  EXPECT_THAT(answer_to(terminal, "/help"), HasSubstr("Ctrl-C"));
  EXPECT_THAT(answer_to(terminal, "/rest"), HasSubstr("/reset"));  // a slip is no question
  terminal.type("/reset\n");
  terminal.read_until("> ");
  EXPECT_EQ(answer_to(terminal, "mul 1234*5678"), first);
  terminal.type("/exit\n");
  const int status = terminal.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ChatTest, CtrlCEndsTheAnswerOnly) {
  Terminal terminal(chat_command());
  terminal.read_until("> ");
  const std::string question = "mul 987654*876543";
  terminal.type(question + "\n");
  terminal.read_until(question + "\r\n");
  terminal.read_until("\n");  // the first line of a long answer
  terminal.type("\x03");
  const std::string rest = terminal.read_until("\n> ");
  EXPECT_THAT(rest, testing::EndsWith("\n> "));
  EXPECT_THAT(rest, Not(HasSubstr("boxed")));
  terminal.type("/reset\n");
  terminal.read_until("> ");
  EXPECT_THAT(answer_to(terminal, "mul 1234*5678"), HasSubstr("boxed{7006652}"));
  terminal.type("\x04");
  const int status = terminal.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ChatTest, CtrlCAtThePromptLeaves) {
  Terminal terminal(chat_command());
  terminal.read_until("> ");
  terminal.type("\x03");
  const int status = terminal.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

// Piped: answers alone go to stdout.
TEST(ChatTest, ReadsQuestionsFromAPipe) {
  std::string command = "printf 'mul 1234*5678\\n\\n/reset\\nmul 1425*3298\\n' |";
  for (const std::string& word : chat_command()) command += " '" + word + "'";
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_THAT(output, HasSubstr("boxed{7006652}"));
  EXPECT_THAT(output, HasSubstr("boxed{4699650}"));
  EXPECT_THAT(output, Not(HasSubstr("> ")));
}

}  // namespace
}  // namespace zipage::cli
