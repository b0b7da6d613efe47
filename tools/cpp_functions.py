"""Finds the functions of a C++ or CUDA file by matching braces, without a compiler.

Good enough for sources that clang-format has laid out: comments, strings and preprocessor lines are blanked first; a brace
at namespace or class scope that follows a parameter list opens a function. Lambdas count to the function they stand in.
"""
import re

_BLANK = re.compile(
    r'R"(?P<tag>[^()\s]{0,16})\((?s:.)*?\)(?P=tag)"'  # raw string
    r'|//[^\n]*|/\*(?s:.)*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'")
_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b")
_NAME = re.compile(r"(~?[A-Za-z_][\w]*(?:::~?[A-Za-z_]\w*)*|operator\s*[^\s(]+|operator\(\))\s*\(")


def blank_text(text):
    """The text with comments, strings and preprocessor lines turned to spaces; line breaks stay."""
    text = _BLANK.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    lines = text.split("\n")
    continued = False
    for i, line in enumerate(lines):
        if continued or line.lstrip().startswith("#"):
            continued = line.rstrip().endswith("\\")
            lines[i] = " " * len(line)
        else:
            continued = False
    return "\n".join(lines)


def _name_of(head):
    test = re.search(r"\b(TEST|TEST_F|TEST_P|TYPED_TEST)\s*\(\s*(\w+)\s*,\s*(\w+)", head)
    if test:
        return f"{test.group(2)}.{test.group(3)}"
    head = re.sub(r"__launch_bounds__\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)|\brequires\s*\(", " ", head)
    found = [m.group(1) for m in _NAME.finditer(head)]
    found = [name for name in found if name not in {"decltype", "noexcept", "alignas", "sizeof", "defined"}]
    return found[0] if found else "?"


def functions(text):
    """Yields (name, first line, number of lines, is_kernel); lines count from the signature to the closing brace."""
    text = blank_text(text)
    # Of open braces: "scope", ("function", name, line, kernel), "block" in a function, or "value" (an initializer).
    scopes = []
    begin = 0  # of the text since the last ; { or }
    parens = 0
    in_function = False
    for at, char in enumerate(text):
        if char in "([":
            parens += 1
        elif char in ")]":
            parens -= 1
        elif char == "{":
            head = text[begin:at]
            if in_function:
                scopes.append("block")
            elif parens > 0:  # a default argument
                scopes.append("value")
                continue
            elif head.rstrip() != head and "(" in head and not re.match(r"\s*(?:\[\[.*?\]\]\s*)?(?:template\s*<[^{]*>\s*)?"
                                                                       r"(?:namespace|class|struct|union|enum)\b", head) \
                    and not re.search(r"(?<![=!<>])=\s*$|^\s*using\b", head):
                first = begin + len(head) - len(head.lstrip())
                line = text.count("\n", 0, first) + 1
                scopes.append(("function", _name_of(head), line, "__global__" in head))
                in_function = True
            elif _SCOPE.search(head) or re.search(r'\bextern\b', head):
                scopes.append("scope")
            else:  # an initializer
                scopes.append("value")
                continue
            begin = at + 1
        elif char == "}":
            if not scopes:
                continue
            scope = scopes.pop()
            if isinstance(scope, tuple):
                in_function = False
                _, name, line, kernel = scope
                yield name, line, text.count("\n", 0, at) + 2 - line, kernel
            elif scope == "value":
                continue
            begin = at + 1
        elif char == ";" and parens == 0:
            begin = at + 1
        elif char == ":" and parens == 0 and re.search(r"\b(public|private|protected)\s*$", text[begin:at]):
            begin = at + 1
