"""The checkers of tools/ find what they are for: every fault here is planted on purpose, beside text that is right."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_docs  # noqa: E402
from cpp_functions import functions  # noqa: E402

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 and pathlib.Path(sys.argv[-1]).is_file() else None


def run(tool, root):
    return subprocess.run([sys.executable, str(ROOT / "tools" / tool), "--root", str(root)], capture_output=True, text=True)


class Tree(unittest.TestCase):
    """A small repository in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/engine/loop.cc", "void Loop::step() {\n  plan();\n}\n")
        self.write("src/engine/loop.h", "class Loop {\n  void step();\n};\n")
        self.write("docs/architecture.md", "### A step (at most 2 files)\n- `src/engine/loop.cc:Loop::step` runs\n")
        self.write("README.md", "`src/engine` holds `Loop::step`; [more](docs/architecture.md)\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Docs(Tree):
    def complaint(self):
        done = run("check_docs.py", self.root)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stdout

    def test_a_true_page_passes(self):
        done = run("check_docs.py", self.root)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_renamed_file_is_found(self):
        (self.root / "src/engine/loop.cc").rename(self.root / "src/engine/step_loop.cc")
        self.assertIn("docs/architecture.md:2: there is no src/engine/loop.cc", self.complaint())

    def test_a_renamed_function_is_found(self):
        self.write("src/engine/loop.cc", "void Loop::turn() {}  // was Loop::step\n")
        self.assertIn("src/engine/loop.cc has no Loop::step", self.complaint())

    def test_a_walk_that_grew_is_found(self):
        self.write("src/a.cc", "int a();\n")
        self.write("src/b.cc", "int b();\n")
        self.write("docs/architecture.md", "### A step (at most 2 files)\n- `src/engine/loop.cc:step`\n- `src/a.cc:a`\n- `src/b.cc:b`\n")
        self.assertIn("names 3 files, at most 2", self.complaint())

    def test_a_page_without_walks_is_found(self):
        self.write("docs/architecture.md", "Nothing.\n")
        self.assertIn("there is no walk", self.complaint())

    def test_a_dead_link_is_found(self):
        self.write("README.md", "[more](docs/gone.md)\n")
        self.assertIn("README.md:1: the link leads to docs/gone.md", self.complaint())

    def test_another_size_limit_is_found(self):
        self.write("README.md", "files of at most 700 lines\n")
        self.assertIn("says 700", self.complaint())


class RealDocs(unittest.TestCase):
    """Against the real sources, and with the program where it is built."""

    @classmethod
    def setUpClass(cls):
        cls.sources = check_docs.Sources(ROOT)
        cls.checker = check_docs.Checker(cls.sources, check_docs.Program(PROGRAM, cls.sources))

    def found(self, text):
        return list(self.checker.page("docs/page.md", text))

    def test_what_exists_passes(self):
        text = ("`src/blocks/ids.h`, `backend/batch.h`, `tests/oracle/`, `Engine::submit`, `EngineOptions::kv_trace`, `num_running`,\n"
                "`--kv-budget`, `check_invariants()`, `GET /health`, `StepPlan`\n"
                "```sh\nscript/build --all\nbin/zipage bench serve --port 8000 --no-stream   # comment\n"
                "cmake --preset asan && cmake --build build/asan --target zipage_soak\n```\n")
        self.assertEqual(self.found(text), [])

    def test_what_does_not_exist_is_found(self):
        for span in ("src/blocks/gone.h", "backend/gone.h", "script/gone", "Engine::gone_member", "GoneType::submit",
                     "gone_function()", "--gone-flag", "GET /gone", "gone_word", "GoneType", "kGoneConstant", "ZIPAGE_GONE"):
            with self.subTest(span=span):
                self.assertEqual(len(self.found(f"text `{span}` text")), 1, span)

    def test_ops_are_members_of_the_backend(self):
        self.assertEqual(self.found("`Backend::sample` and `Backend::top_k`"), [])
        self.assertEqual(len(self.found("`Backend::unheard_of_op`")), 1)

    def test_what_an_example_adds_need_not_exist(self):
        self.assertEqual(len(self.found("`unheard_of_op` and `src/model/families/unheard_of_op.cc`")), 2)
        self.assertEqual(self.found("<!-- the example adds: unheard_of_op -->\n`unheard_of_op` and "
                                    "`src/model/families/unheard_of_op.cc`"), [])

    def test_commands_that_do_not_exist_are_found(self):
        for line in ("script/gone", "script/build --gone", "cmake --preset gone", "cmake --build build/asan --target gone",
                     "build/release/bench/gone 1", "python -m zipage.gone", "bin/zipage run models/gone"):
            with self.subTest(line=line):
                self.assertEqual(len(self.found(f"```sh\n{line}\n```")), 1, line)

    @unittest.skipUnless(PROGRAM, "needs a built program")
    def test_each_command_has_its_own_flags(self):
        for line in ("bin/zipage gone", "bin/zipage inspect models/reasoner-16m --port 1", "zipage run --swap on"):
            with self.subTest(line=line):
                self.assertEqual(len(self.found(f"```sh\n{line}\n```")), 1, line)


class Sizes(Tree):
    def lines(self, count):
        return "int f() {\n" + "  g();\n" * (count - 2) + "}\n"

    def test_what_is_small_passes(self):
        self.write("src/a.cc", self.lines(60))
        self.write("src/k.cu", "__global__ void k() {\n" + "  g();\n" * 118 + "}\n")
        self.assertEqual(run("check_sizes.py", self.root).returncode, 0)

    def test_what_has_grown_is_found(self):
        self.write("src/a.cc", self.lines(61))
        self.write("src/long.cc", "int a;\n" * 501)
        self.write("src/k.cu", "__global__ void k() {\n" + "  g();\n" * 119 + "}\n")
        self.write("tools/t.py", "def f():\n" + "    g()\n" * 60)
        for i in range(26):
            self.write(f"src/wide/f{i}.h", "\n")
        done = run("check_sizes.py", self.root)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines(),
                         ["src/a.cc:f: 61 lines, at most 60", "src/k.cu:k: 121 lines, at most 120",
                          "src/long.cc: 501 lines, at most 500", "tools/t.py:f: 61 lines, at most 60",
                          "src/wide/: 26 files, at most 25"])

    def test_an_exception_needs_a_reason_and_a_use(self):
        self.write("src/a.cc", self.lines(61))
        self.write("tools/size_exceptions.txt", "src/a.cc:f one table\n")
        self.assertEqual(run("check_sizes.py", self.root).returncode, 0)
        self.write("tools/size_exceptions.txt", "src/a.cc:f\n")
        self.assertIn("has no reason", run("check_sizes.py", self.root).stderr)
        self.write("tools/size_exceptions.txt", "src/a.cc:f one table\nsrc/b.cc:f gone\n")
        self.assertIn("remove the line", run("check_sizes.py", self.root).stdout)


class Functions(unittest.TestCase):
    def names(self, text):
        return [(name, length) for name, _, length, _ in functions(text)]

    def test_signatures(self):
        text = '''namespace a {
class B : public C {
 public:
  explicit B(int x)
      : x_{x}, y_(x) {}
  int size() const override { return x_; }
  std::vector<int> v_ = {1, 2};
};
template <typename T>
requires std::is_integral_v<T>
T B::twice(const std::map<int, int>& m = {}, T t) noexcept {
  // a brace in a comment {
  const char* s = "}";
  auto f = [](int i) { return i; };
  return t * 2;
}
struct E { int a; };
TEST(Suite, Case) {
}
}  // namespace a
'''
        self.assertEqual(self.names(text), [("B", 2), ("size", 1), ("B::twice", 8), ("Suite.Case", 2)])


if __name__ == "__main__":
    unittest.main()
