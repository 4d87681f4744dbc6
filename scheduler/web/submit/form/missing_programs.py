"""Find commands whose programs will be missing from the pods."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from berth.core.problems import join_path
from berth.documents.values import value_at
from scheduler.web.submit.form.role_locations import role_locations

LAUNCHERS = re.compile(
    r"(python[0-9.]*|torchrun|accelerate|deepspeed|bash|sh|node|Rscript|julia|perl|ruby)", re.ASCII
)
PROGRAM_FILE = re.compile(r"(\./)?[A-Za-z0-9_][\w./-]*\.(py|sh|js|R|jl|pl|rb)", re.ASCII)
LOCAL_PROGRAM = re.compile(r"\./[\w./-]+", re.ASCII)
PROVIDES_FILES = ("code", "image", "workspace", "volumes")
STOPS_SEARCH = frozenset({"-c", "-m"})  # flags followed by code or a module name instead of a file


def missing_programs(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the program files that commands need but the workload does not include, keyed by the command's
    path in the document. Commands that could create or find the file are left out.
    """
    if any(data.get(key) for key in PROVIDES_FILES) or _is_absolute(data.get("working_dir")):
        return {}
    commands = {"command": data.get("command")}
    for at in role_locations(data):
        if not value_at(data, (*at, "workspace")):
            commands[join_path((*at, "command"))] = value_at(data, (*at, "command"))
    programs = {path: _program_name(command) for path, command in commands.items()}
    return {path: program for path, program in programs.items() if program}


def _is_absolute(directory: Any) -> bool:
    return isinstance(directory, str) and directory.startswith("/")


def _program_name(command: Any) -> str:
    """Return the program file at the beginning of a command, or "" if there is none."""
    words = list(_first_command_words(command))
    if not words:
        return ""
    if LOCAL_PROGRAM.fullmatch(words[0]):
        return words[0]
    if not LAUNCHERS.fullmatch(words[0]):
        return ""
    for word in words[1:]:
        if word in STOPS_SEARCH:
            return ""
        if PROGRAM_FILE.fullmatch(word):
            return word
    return ""


def _first_command_words(command: Any) -> Iterator[str]:
    """Yield the words of a command's first simple command, without `exec`, `env` and assignments."""
    if isinstance(command, list):
        words = [str(word) for word in command]
    elif isinstance(command, str):
        lexer = shlex.shlex(command.strip(), posix=True, punctuation_chars="();<>|&\n")
        lexer.whitespace_split, lexer.whitespace = True, " \t\r"
        try:
            words = list(lexer)
        except ValueError:  # the command has an unclosed quote
            return
    else:
        return
    is_prefix = True
    for word in words:
        if word and set(word) <= set("();<>|&\n"):
            return
        if is_prefix and (word in ("exec", "env") or re.match(r"[A-Za-z_]\w*=", word)):
            continue
        is_prefix = False
        yield word
