"""Generate the idempotent shell script that installs an environment on a machine."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files

from pools.plugins.base import Operation
from pools.plugins.image import Image

INSTALLER = 3  # increase when the installation method changes, so that environments are rebuilt
_PIP = "pip install --no-input --retries 2"


def compute_digest(image: Image, operations: Sequence[Operation]) -> str:
    """Return the digest that identifies an environment by its content."""
    scripts = [[operation.title, operation.script] for operation in operations]
    content = {**image.to_dict(), "installer": INSTALLER, "operations": scripts}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def bootstrap_script(image: Image, operations: Sequence[Operation]) -> str:
    """Return a deterministic script without secrets that installs the environment when a node boots."""
    replacements = {
        "@DIGEST@": compute_digest(image, operations),
        "@PYTHON@": shlex.quote(image.python),
        "@APT@": " ".join(image.apt),
        "@SECRETS@": " ".join(image.secrets),
        "@VARIABLES@": "\n".join(f"export {name}={shlex.quote(value)}" for name, value in image.env.items()),
        "@REQUIREMENTS@": "\n".join(image.pip),
        "@PIP@": "\n".join(_pip_commands(image)),
        "@OPERATIONS@": "\n".join(
            _shell_function(number, operation) for number, operation in enumerate(operations)
        ),
        "@PHASES@": "\n".join(
            f"phase {shlex.quote(operation.title)} operation_{number}"
            for number, operation in enumerate(operations)
        ),
    }
    text = files("pools.plugins").joinpath("bootstrap.sh").read_text(encoding="utf-8")
    return re.sub("|".join(replacements), lambda match: replacements[match[0]], text)


def phase_names(image: Image, operations: Sequence[Operation]) -> tuple[str, ...]:
    """Return the names of all script phases, in order."""
    return ("apt", "python", "pip", "code", *(operation.title for operation in operations))


def _pip_commands(image: Image) -> Iterator[str]:
    """Yield pip commands, starting with those for packages that have their own index.

    If the image names a default index, the indexes in pip's own configuration are ignored.
    """
    default_url = next((index.url for index in image.indexes if not index.packages), "")
    pip = f"isolated_{_PIP} --index-url {shlex.quote(default_url)}" if default_url else _PIP
    install = f'{pip} --requirement "$venv/requirements.txt"'
    url_by_package = {
        _normalize_package_name(name): index.url
        for index in reversed(image.indexes)
        for name in index.packages
    }
    if not url_by_package:
        yield f"  {install}"
        return
    lines = " ".join(shlex.quote(f"{name} {url}") for name, url in sorted(url_by_package.items()))
    yield f"  printf '%s\\n' {lines} > \"$venv/scoped\""
    for index in image.indexes:
        if requirements := [
            requirement
            for requirement in image.pip
            if url_by_package.get(_package_name(requirement)) == index.url and index.packages
        ]:
            yield f"  from_index {shlex.quote(index.url)} {shlex.join(requirements)}"
    yield f"  install_rest {install}"


def _package_name(requirement: str) -> str:
    return _normalize_package_name(re.match(r"[A-Za-z0-9._-]*", requirement)[0])  # type: ignore[index]


def _normalize_package_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _shell_function(number: int, operation: Operation) -> str:
    return f"operation_{number}() {{ # {' '.join(operation.title.split())}\n{operation.script}\n}}\n"
