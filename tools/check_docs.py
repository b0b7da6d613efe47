#!/usr/bin/env python3
"""Fails when README.md, CONTRIBUTING.md or docs/ name something that does not exist.

Checked, in code spans and in code blocks:
- paths below the repository (`src/engine`, `tests/oracle/`) or below src/ (`backend/batch.h`), and targets of links;
- symbols: `Class::member`, `function()`, `Suite.Test` (with *), and single words that look like identifiers;
- flags: of `zipage COMMAND` in that command's --help (with --program), others anywhere in the sources or scripts;
- commands: `zipage COMMAND`, scripts, programs that a build makes, cmake presets and targets;
- routes of the HTTP API;
- limits in docs/architecture.md: the numbers of tools/check_sizes.py;
- walks in docs/architecture.md: a heading "... (at most N files)" above a list of `path:function`. Each path exists, each
  function stands in its file, and there are at most N files. Every page may hold at most what the sources hold.

A page whose example adds something says so, `<!-- the example adds: mean_pool MeanPool -->`: what contains one of these words
need not exist. A word of another program stands in FOREIGN below. usage: check_docs.py [--root FOLDER] [--program bin/zipage]
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_sizes  # noqa: E402

# Flags of other programs, and words of prose, that the pages may name.
FOREIGN_FLAGS = {"--prefix", "--target"}
FOREIGN_WORDS = {"PascalCase", "snake_case"}
# The checker and its test name what does not exist.
NOT_EVIDENCE = {"tools/check_docs.py", "tests/tools/test_checkers.py"}
TEXT_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".txt", ".json", ".jsonl", ".cmake", ".toml", ".yml", ".yaml", ".in",
                 ".service", "", ".html", ".js", ".css"}
TOP = re.compile(r"^(?:\.ci|\.github|include|src|tests|tools|script|docs|bench|models|deploy|examples|python|cmake)(?:/|$)")
ROOM_FILE = re.compile(r"^[a-z_]+(?:/[\w.-]+)+$")


class Sources:
    """What stands in the repository: paths, and the text of every tracked file that is not a page."""

    def __init__(self, root):
        self.root = root
        self.paths = set(check_sizes.tracked_files(root))
        self.folders = {str(parent) for path in self.paths for parent in pathlib.PurePath(path).parents}
        self.texts = {}
        for path in self.paths:
            if pathlib.PurePath(path).suffix in TEXT_SUFFIXES and not path.startswith("models/"):
                try:
                    self.texts[path] = (root / path).read_text()
                except UnicodeDecodeError:
                    pass
        self.all_text = "\n".join(text for path, text in self.texts.items() if path not in NOT_EVIDENCE)
        self.words = set(re.findall(r"[A-Za-z_]\w*", self.all_text))
        self.words |= {pathlib.PurePath(path).stem for path in self.paths}
        self.tests = {f"{m[0]}.{m[1]}" for m in
                      re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)", self.all_text)}
        self.tests |= set(re.findall(r"add_test\(NAME (\w+\.\w+)", self.all_text))
        cmake = "\n".join(text for path, text in self.texts.items() if path.endswith(("CMakeLists.txt", ".cmake")))
        self.targets = set(re.findall(r"\badd_(?:executable|library|custom_target)\((\w+)", cmake))
        self.targets |= {"test_" + name for name in re.findall(r"\bzipage_room_test\((\w+)", cmake)}
        self.targets |= set(re.findall(r"\bzipage_cuda_program\((\w+)", cmake))
        self.targets |= {prefix + name for prefix, names in
                         re.findall(r"add_executable\((\w+_)\$\{\w+\}", cmake) and
                         [(p, re.findall(r"\w+", n)) for n, p in re.findall(
                             r"foreach\(\w+ IN ITEMS ([\w\s]+)\)\s+add_executable\((\w+_)\$\{", cmake)] for name in names}
        self.targets |= {"fuzzers", "all", "install", "examples"}
        presets = self.texts.get("CMakePresets.json", "")
        self.presets = set(re.findall(r'"name": "(\w+)"', presets))

    def exists(self, path):
        path = path.rstrip("/")
        if "*" in path:
            return any(pathlib.PurePath(known).match(path) for known in self.paths)
        return path in self.paths or path in self.folders

    def declares(self, owner, member):
        """Whether `member` occurs in a file that declares the type or namespace `owner`, or beside it as owner::member."""
        if re.search(rf"\b{owner}::~?{member}\b", self.all_text):
            return True
        if owner == "Backend" and re.search(rf"\bop\({member}, \w+\)", self.all_text):
            return True  # of src/backend/ops/op_list.h
        declared = re.compile(rf"\b(?:class|struct|enum|enum class|namespace|union)\s+(?:\w+::)*{owner}\b")
        return any(re.search(rf"\b{member}\b", text) for path, text in self.texts.items()
                   if path not in NOT_EVIDENCE and declared.search(text))


class Program:
    """`zipage COMMAND --help`: which commands there are, and each one's flags. Without a program: the flags in src/cli."""

    def __init__(self, program, sources):
        self.program = program
        self.cache = {}
        self.known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", sources.all_text))
        self.words = sources.words

    def help(self, command):
        if command not in self.cache:
            done = subprocess.run([self.program, *command, "--help"], capture_output=True, text=True, timeout=60)
            self.cache[command] = done.stdout if done.returncode == 0 else None
        return self.cache[command]

    def complaints(self, words):
        """What is wrong with a command line of the program; words[0] is the program itself."""
        words = [word for word in words[1:]]
        command = []
        if self.program:
            while words and re.fullmatch(r"[a-z][a-z-]*", words[0]) and self.help((*command, words[0])) is not None \
                    and len(command) < 2 and self.help((*command, words[0])) != self.help(tuple(command)):
                command.append(words.pop(0))
            if words and not command and re.fullmatch(r"[a-z][a-z-]*", words[0]):
                yield f"`zipage {words[0]}` is not a command"
                return
            text = self.help(tuple(command)) or ""
            flags = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))
        else:
            flags = self.known
        for word in words:
            match = re.match(r"--?[A-Za-z][\w-]*", word)
            if not match or match.group(0) in flags:
                continue
            positive = "--" + match.group(0)[5:]
            if match.group(0).startswith("--no-") and positive in flags:
                continue
            yield f"`zipage {' '.join(command)}` has no flag {match.group(0)}"


def spans_and_lines(text):
    """Yields (line number, "span" | "code" | "link", text)."""
    language = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            language = None if language is not None else fence.group(1)
            continue
        if language is not None:
            yield number, "sh" if language in {"sh", "bash", "console"} else "code", line
            continue
        for span in re.findall(r"`([^`]+)`", line):
            yield number, "span", span
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            yield number, "link", target


class Checker:
    def __init__(self, sources, program):
        self.sources = sources
        self.program = program

    def path(self, text):
        s = self.sources
        text = text.split("::")[0]
        if re.search(r"[{}<>$~]|[A-Z]{3,}$", text):
            return
        if TOP.match(text):
            if not s.exists(text):
                yield f"there is no {text}"
        elif ROOM_FILE.match(text) and (text.split("/")[0] in self.rooms() or text.startswith("zipage/")):
            names = {f"{base}{text}{end}" for base in ("src/", "include/", "tests/", "python/", "src/backend/", "")
                     for end in ("", ".h", ".cc", ".cu")}
            if not any(s.exists(name) for name in names):
                yield f"there is no {text} below src, include, tests or python"

    def rooms(self):
        return {path.split("/")[1] for path in self.sources.folders if path.startswith("src/")}

    def command(self, line):
        """A command line; yields what is wrong with it."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = line.split()
        for part in self.simple_commands(words):
            while part and re.match(r"[A-Z_]+=", part[0]):
                part = part[1:]
            if not part:
                continue
            name = part[0]
            if name in {"bin/zipage", "zipage"}:
                yield from self.program.complaints(part)
            elif name.startswith(("script/", "tests/", "tools/", "bench/", ".ci/")):
                if not self.sources.exists(name):
                    yield f"there is no {name}"
                else:
                    yield from self.flags_in(part, self.sources.texts.get(name, ""), name)
            elif name.startswith("build/"):
                target = name.rsplit("/", 1)[-1]
                if target not in self.sources.targets and not self.example(target):
                    yield f"no build makes {name}"
            elif name == "cmake":
                yield from self.cmake(part)
            elif name in {"python", "python3"} and "-m" in part and part[part.index("-m") + 1].startswith("zipage"):
                module = "python/" + part[part.index("-m") + 1].replace(".", "/")
                if not (self.sources.exists(module + ".py") or self.sources.exists(module + "/__main__.py")):
                    yield f"there is no module {module}"
                for word in part:
                    if re.match(r"--[a-z]", word) and word.split("=")[0] not in self.program.known and \
                            word[2:].replace("-", "_") not in self.sources.words:
                        yield f"{name} -m zipage... has no flag {word}"
            for word in part[1:]:
                if TOP.match(word) and name != "lm_eval":
                    yield from self.path(word.split("=")[-1])

    def example(self, target):
        return self.sources.exists(f"examples/{target}.cc")

    @staticmethod
    def simple_commands(words):
        part = []
        for word in words:
            if word in {"&&", "||", "|", ";", "\\"} or word.endswith(";"):
                if word != "\\":
                    yield part
                    part = []
            else:
                part.append(word)
        yield part

    def cmake(self, part):
        for flag, known in (("--preset", self.sources.presets), ("--target", self.sources.targets)):
            if flag in part:
                for word in part[part.index(flag) + 1:]:
                    if word.startswith("-"):
                        break
                    if word not in known:
                        yield f"cmake {flag}: there is no {word}"

    @staticmethod
    def flags_in(part, text, name):
        for word in part[1:]:
            if re.match(r"--[a-z]", word) and word.split("=")[0] not in text:
                yield f"{name} has no flag {word}"

    def span(self, text):
        s = self.sources
        if re.match(r"(?:bin/zipage|zipage|script/[\w-]+|tests/[\w/]+|python -m \S+|cmake) \S", text):
            yield from self.command(text)
            return
        flag = re.match(r"(--[a-z][\w-]*)", text)
        if flag:
            names = set(re.findall(r"(?<!\w)--[a-z][\w-]*", text))
            for name in names:
                if name not in self.program.known and name not in FOREIGN_FLAGS and \
                        name.replace("--no-", "--") not in self.program.known:
                    yield f"no program of ours has a flag {name}"
            return
        route = re.fullmatch(r"(?:GET |POST )?(/[\w./{}-]+)", text)
        if route:
            literal = route.group(1).split("{")[0]
            if f'"{literal}' not in s.all_text and f"'{literal}" not in s.all_text:
                yield f"the server has no route {literal}"
            return
        if "/" in text and not re.search(r"[\s(=]", text):
            yield from self.path(text.split(":")[0])
            return
        member = re.fullmatch(r"(?:zipage::)?(\w+)::(~?\w+)(?:\(\))?", text)
        if member and member.group(1) != "zipage":
            if not s.declares(*member.groups()):
                yield f"there is no {text}"
            return
        test = re.fullmatch(r"([A-Z]\w+)\.([A-Z*][\w*]*)", text) or re.fullmatch(r"([A-Z]\w+)(\*)", text)
        if test:
            pattern = re.compile(text.replace(".", r"\.").replace("*", r".*"))
            if not any(pattern.fullmatch(name) for name in s.tests) and text not in s.all_text:
                yield f"there is no test {text}"
            return
        call = re.fullmatch(r"(\w+)\(\)", text)
        if call:
            if not re.search(rf"\b{call.group(1)}\s*\(", s.all_text):
                yield f"there is no function {text}"
            return
        word = re.fullmatch(r"[a-z]+(?:_[a-z0-9]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+|k[A-Z]\w+|ZIPAGE_\w+", text)
        if word and text not in s.words and text not in FOREIGN_WORDS:
            yield f"the sources never say {text}"

    def page(self, path, text):
        continued = ""
        added = re.findall(r"\w+", " ".join(re.findall(r"<!-- the example adds: ([\w ]+) -->", text)))
        for number, kind, content in spans_and_lines(text):
            if kind == "span":
                found = self.span(content)
            elif kind == "link":
                found = self.link(path, content)
            elif kind == "sh":
                if content.rstrip().endswith("\\"):
                    continued += content.rstrip()[:-1] + " "
                    continue
                found, continued = self.command(continued + content), ""
            else:
                found = self.block_line(content)
            for complaint in found:
                if not any(word in complaint for word in added):
                    yield f"{path}:{number}: {complaint}"

    def link(self, page, target):
        if re.match(r"[a-z]+:|#", target):
            return
        wanted = (self.sources.root / page).parent / target.split("#")[0]
        if not wanted.exists():
            yield f"the link leads to {target}, which does not exist"

    def block_line(self, line):
        """A line of a drawing or a listing: its first word may be a path, and it may name members and folders of src/."""
        for owner, member in re.findall(r"\b([A-Z]\w+)::(\w+)", line):
            if owner != "zipage" and not self.sources.declares(owner, member):
                yield f"there is no {owner}::{member}"
        for path in re.findall(r"\b(?:src|tests|tools|docs)/[\w/.-]*\w", line):
            yield from self.path(path)
        match = re.match(r"((?:include|src|tests|tools|script|docs|bench|models|deploy|examples|python)/[\w./-]*)", line)
        if match:
            yield from self.path(match.group(1))


def walks(page, text, sources):
    """Checks the lists of `path:function` under headings that end in "(at most N files)"."""
    limit = heading = None
    files = []
    steps = 0

    def finish():
        if limit is not None and len(set(files)) > limit:
            yield f"{page}: '{heading}' names {len(set(files))} files, at most {limit}"
        if limit is not None and steps == 0:
            yield f"{page}: '{heading}' has no step"

    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            yield from finish()
            match = re.search(r"\(at most (\d+) files\)", line)
            limit, heading, files, steps = int(match.group(1)) if match else None, line.strip("# "), [], 0
        elif limit is not None and (step := re.match(r"\s*(?:\d+\.|-) `([\w./-]+):([\w:~]+)`", line)):
            steps += 1
            path, function = step.groups()
            files.append(path)
            if path not in sources.texts:
                yield f"{page}:{number}: there is no {path}"
            elif not re.search(rf"\b{function.split('::')[-1]}\b", strip_comments(sources.texts[path])):
                yield f"{page}:{number}: {path} has no {function}"
    yield from finish()
    if "(at most" not in text:
        yield f"{page}: there is no walk: a heading '... (at most N files)' and a list of `path:function`"


def strip_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def limits(page, text):
    """The sizes that the page names are those of check_sizes.py."""
    for words, value in ((r"files of at most (\d+) lines", check_sizes.MAX_FILE_LINES),
                         (r"functions of at most (\d+)", check_sizes.MAX_FUNCTION_LINES),
                         (r"folders of at most (\d+) files", check_sizes.MAX_FOLDER_FILES)):
        for found in re.findall(words, text):
            if int(found) != value:
                yield f"{page}: '{words}' says {found}, tools/check_sizes.py {value}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--program", help="a built zipage, whose --help knows the flags of each command")
    options = parser.parse_args()
    sources = Sources(options.root)
    checker = Checker(sources, Program(options.program, sources))
    complaints = []
    for path in sorted(sources.paths):
        if path in {"README.md", "CONTRIBUTING.md"} or (path.startswith("docs/") and path.endswith(".md")):
            text = (options.root / path).read_text()
            complaints += checker.page(path, text)
            complaints += limits(path, text)
            if path == "docs/architecture.md":
                complaints += walks(path, text, sources)
    print("\n".join(complaints) if complaints else "docs: every path, symbol, flag and command exists")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
