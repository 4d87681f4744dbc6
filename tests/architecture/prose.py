"""Check names, docstrings, messages, templates, documents and commit subjects against the language rules.

python -m tests.architecture.prose    print all violations; exit with 1 if there are any
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parents[2]
SUBJECTS_SINCE = "07d90cc"
SUBJECT_MAX = 72

BANNED_NAMES = {"found", "told", "said", "asked", "kept", "known", "given", "taken", "lost", "gone"}
BANNED_ENDINGS = ("_told", "_found", "_said", "_asked")
BANNED_FUNCTIONS = {"_of", "_say", "_ask"}
PHRASES = re.compile(
    r"\b(thereby|of which|in name only|as it stands|at most so many|for ever|nobody|somebody|whoever)\b",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"(?:(?<=[.!:]\s)|(?<=^)|(?<=\n\n))\s*([A-Z][^.!?]*[.!?]?)")
HEADLESS = re.compile(r"(?:Who|What|Whoever|Whose|Whatever)\b")
HEADLESS_CONTEXT = re.compile(r"What if\b|Who am I\b|What's new\b")
NOT_IMPERATIVE = re.compile(r"(?:\w+(?:ing|[^e]ed)|The|A|An|Who|What|Where|Whose|When|How|All|Every|It)\b")
IMPERATIVES_LIKE_THESE = {"Bring", "Embed", "Feed", "Need", "Ping", "Seed", "Shed", "Speed", "String", "Wed"}
# Texts beside options and form fields. A placeholder at either end is not checked.
HELP_KEYWORDS = {"help", "help_text"}
HELP_START = re.compile(r"[^a-z]|$")
# One form for each kind of message, so that the same rejection reads alike everywhere.
ONE_FORM = (
    (re.compile(r"\bNo [a-z ]+ is named\b"), "There is no ... named"),
    (re.compile(r"\bThis [a-z ]+ was (?:already )?(?:deleted|removed)\b"), "This ... has been deleted"),
    (re.compile(r"\bThere is no [a-z ]+ with that ID\b"), "There is no ... with the ID ..."),
    (re.compile(r"[;.] [Dd]efault: "), "Defaults to ..."),
)
# Messages of commands end like sentences, because one function prints them.
COMMANDS, MESSAGES = "platform/berth/cli/", "platform/berth/cli/printing/text.py"
# Oxford spelling: colour, behaviour, utilize. Names in CSS and in APIs of others are followed by a sign.
SPELLING = re.compile(
    r"\b(?:[Cc]olored|[Cc]olors?|[Bb]ehaviors?|[Nn]eighbors?|[Ff]avors?)\b(?![-:(=])"
    r"|\b[A-Za-z]*(?:util|organ|recogn|normal|initial|optim|serial|author|summar|priorit|real)is(?:e[ds]?|ing|ation)\b"
)
# The Unix account, and identifiers from the source documents.
ALLOWED_TEXT = {"nobody"}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
BINDING = (ast.Name, ast.Attribute, ast.arg, *FUNCTIONS)


@dataclass(frozen=True, order=True)
class Violation:
    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def violations() -> list[Violation]:
    """Return all violations in tracked files, ordered by file and line."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    results: list[Violation] = []
    for name in sorted(set(listed.stdout.split())):
        file = ROOT / name
        if not file.is_file() or "migrations" in file.parts or name == "tests/architecture/prose.py":
            continue
        if file.suffix == ".py":
            results += in_python(name, file.read_text())
        elif file.suffix == ".html":
            results += in_template(name, file.read_text())
        elif file.suffix == ".md" and name != "CHANGELOG.md":
            results += in_document(name, file.read_text())
    return sorted(results)


def in_python(name: str, text: str) -> Iterator[Violation]:
    docstrings: set[int] = set()
    tree = ast.parse(text)
    if tree.body and ast.get_docstring(tree) is None:
        yield Violation(name, 1, "module without a docstring", "")
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.add(id(cast("ast.Expr", node.body[0]).value))  # a node comes before the nodes in it
        if isinstance(node, BINDING) and (identifier := _bound_name(node)):
            if is_banned(identifier, function=isinstance(node, FUNCTIONS)):
                yield Violation(name, node.lineno, "banned name", identifier)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in ALLOWED_TEXT
        ):
            is_docstring = id(node) in docstrings
            if is_docstring and node.value.lstrip().startswith("Here"):
                yield Violation(name, node.lineno, "docstring begins with Here", node.value.split("\n")[0])
            yield from in_message(name, node.lineno, node.value)
            if is_docstring or " " in node.value:
                yield from in_text(name, node.lineno, node.value)
        if isinstance(node, ast.Call) and not name.startswith("tests/"):
            yield from in_help(name, node)
    for number, source in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*# (.*)", source):
            yield from in_text(name, number, match[1])


def in_message(name: str, line: int, text: str) -> Iterator[Violation]:
    if text.startswith("berth: ") and name.startswith(COMMANDS) and name != MESSAGES:
        yield Violation(name, line, "message without print_message", text)


def in_help(name: str, call: ast.Call) -> Iterator[Violation]:
    """Yield the call's help texts that are neither sentences nor noun phrases with a full stop."""
    for keyword in call.keywords:
        if keyword.arg not in HELP_KEYWORDS:
            continue
        match keyword.value:
            case ast.Constant(value=str(text)):
                first = last = text
            case ast.JoinedStr(values=[first_part, *_] as parts):
                first, last = _literal(first_part, "X"), _literal(parts[-1], ".")
            case _:
                continue
        if not HELP_START.match(first):
            yield Violation(name, keyword.value.lineno, "help begins with a lower-case letter", first[:60])
        if not last.endswith("."):
            yield Violation(name, keyword.value.lineno, "help without a full stop", last[-60:])


def _literal(part: ast.expr, placeholder: str) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else placeholder


def in_template(name: str, text: str) -> Iterator[Violation]:
    visible = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}|<[^>]*>", lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for number, line in enumerate(visible.splitlines(), 1):
        yield from in_text(name, number, line.strip())


def in_document(name: str, text: str) -> Iterator[Violation]:
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield from in_text(name, number, line.strip("#*- "))


def in_text(name: str, line: int, text: str) -> Iterator[Violation]:
    for match in PHRASES.finditer(text):
        yield Violation(name, line, "phrase", match[0])
    for match in SPELLING.finditer(text):
        yield Violation(name, line, "spelling", match[0])
    for pattern, form in ONE_FORM:
        if other_form := pattern.search(text):
            yield Violation(name, line, f"say {form!r}", other_form[0])
    for match in SENTENCE.finditer(text):
        sentence = match[1]
        if HEADLESS.match(sentence) and not sentence.endswith("?") and not HEADLESS_CONTEXT.match(sentence):
            yield Violation(name, line, "headless sentence", sentence[:60].replace("\n", " "))


def is_banned(identifier: str, *, function: bool) -> bool:
    bare = identifier.strip("_")
    if bare == "not_found":
        return False
    return (
        bare in BANNED_NAMES
        or identifier.endswith(BANNED_ENDINGS)
        or (function and identifier in BANNED_FUNCTIONS)
    )


def subjects() -> list[str]:
    """Return the violations in commit subjects since SUBJECTS_SINCE, or none in a shallow clone."""
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", f"{SUBJECTS_SINCE}..HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    faults = []
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        first = subject.partition(" ")[0]
        if len(subject) > SUBJECT_MAX:
            faults.append(f"{commit}: subject of {len(subject)} characters: {subject}")
        if not first[:1].isupper() or (NOT_IMPERATIVE.match(first) and first not in IMPERATIVES_LIKE_THESE):
            faults.append(f"{commit}: subject is not imperative: {subject}")
    return faults


def _bound_name(node: ast.Name | ast.Attribute | ast.arg | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    match node:
        case ast.Name(id=identifier, ctx=ast.Store()) | ast.Attribute(attr=identifier, ctx=ast.Store()):
            return identifier
        case (
            ast.arg(arg=identifier) | ast.FunctionDef(name=identifier) | ast.AsyncFunctionDef(name=identifier)
        ):
            return identifier
    return ""


def main() -> int:
    violations_and_faults = [*map(str, violations()), *subjects()]
    print(*violations_and_faults, sep="\n", end="\n" if violations_and_faults else "")
    return 1 if violations_and_faults else 0


if __name__ == "__main__":
    sys.exit(main())
