"""Generate the synchronous client and the models: `python -m berth.client.generate`.

The synchronous client is generated from the asynchronous one, and the models from the OpenAPI document.
"""

import re
import subprocess
import sys
from pathlib import Path

from berth.client import model_generator

FOLDER = Path(__file__).parent
# Files in `aio` and `sync` that are not generated, because threads and tasks differ by more than `await`.
HAND_WRITTEN = ("__init__.py", "background.py")
HEADER = "# Generated from {source} by `python -m berth.client.generate`; do not edit.\n"
REPLACEMENTS = (
    (r"\basync (with|for|def)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basync(?=contextmanager\b)", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\ba(close|read|iter_bytes|closing)\b", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"^import asyncio$", "import time"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bwebsockets\.asyncio\b", "websockets.sync"),
    (r"\bberth\.client\.aio\b", "berth.client.sync"),
    (r"\basynchronous\b", "synchronous"),
    (r"\bAsynchronous\b", "Synchronous"),
)


def generate_modules() -> dict[str, str]:
    """Return the source of each generated module in `berth.client.sync`, keyed by its path in that folder."""
    folder = FOLDER / "aio"
    paths = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*.py"))]
    return {
        path: to_synchronous((folder / path).read_text(), f"berth/client/aio/{path}")
        for path in paths
        if path not in HAND_WRITTEN
    }


def generate_models() -> dict[str, str]:
    """Return the source of each generated module in `berth.client.models`, keyed by file name."""
    sources = model_generator.generate_sources()
    return {name: _finish_module(text, "the OpenAPI document") for name, text in sources.items()}


def to_synchronous(text: str, source: str) -> str:
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return _finish_module(text, source)


def _finish_module(text: str, source: str) -> str:
    text = HEADER.format(source=source) + text
    text = _run_ruff(text, "check", "--fix-only", "--unsafe-fixes", "--quiet", "--select", "I,F,UP,C4")
    return _run_ruff(text, "format", "--quiet")


def _run_ruff(text: str, *command: str) -> str:
    name = str(FOLDER / "sync" / "generated.py")  # Ruff applies the folder's settings to this path
    arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", name, "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for folder, modules in (("sync", generate_modules()), ("models", generate_models())):
        for name, text in modules.items():
            file = FOLDER / folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
