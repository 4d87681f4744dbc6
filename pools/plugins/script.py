"""Write the script that makes an environment on a machine: readable, and safe to run again."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files

from pools.plugins.base import Operation
from pools.plugins.image import Image

INSTALLER = 3  # increased when the same image is installed in another way, so that environments are rebuilt
_PIP = "pip install --no-input --retries 2"


def digest_of(image: Image, operations: Sequence[Operation]) -> str:
    """The name of an environment: what is in it, in one order and one spelling."""
    scripts = [[each.title, each.script] for each in operations]
    content = {**image.to_dict(), "installer": INSTALLER, "operations": scripts}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def bootstrap_script(image: Image, operations: Sequence[Operation]) -> str:
    """What a node runs when it boots; the same image and operations give the same text, without a secret."""
    steps = {
        "@DIGEST@": digest_of(image, operations),
        "@PYTHON@": shlex.quote(image.python),
        "@APT@": " ".join(image.apt),
        "@SECRETS@": " ".join(image.secrets),
        "@VARIABLES@": "\n".join(f"export {name}={shlex.quote(value)}" for name, value in image.env.items()),
        "@REQUIREMENTS@": "\n".join(image.pip),
        "@PIP@": "\n".join(_installing(image)),
        "@OPERATIONS@": "\n".join(_function(number, each) for number, each in enumerate(operations)),
        "@PHASES@": "\n".join(
            f"phase {shlex.quote(each.title)} operation_{number}" for number, each in enumerate(operations)
        ),
    }
    text = files("pools.plugins").joinpath("bootstrap.sh").read_text(encoding="utf-8")
    return re.sub("|".join(steps), lambda found: steps[found[0]], text)


def phases_of(image: Image, operations: Sequence[Operation]) -> tuple[str, ...]:
    """The names of all phases, in order."""
    return ("apt", "python", "pip", "code", *(operation.title for operation in operations))


def _installing(image: Image) -> Iterator[str]:
    """Yield shell commands: install the scoped packages from their own indexes first, then all others.

    An index that the image names is asked alone; pip's own configuration holds where it names none.
    """
    usual = next((index.url for index in image.indexes if not index.packages), "")
    pip = f"isolated_{_PIP} --index-url {shlex.quote(usual)}" if usual else _PIP
    install = f'{pip} --requirement "$venv/requirements.txt"'
    owners = {_plain(name): index.url for index in reversed(image.indexes) for name in index.packages}
    if not owners:
        yield f"  {install}"
        return
    lines = " ".join(shlex.quote(f"{name} {url}") for name, url in sorted(owners.items()))
    yield f"  printf '%s\\n' {lines} > \"$venv/scoped\""
    for index in image.indexes:
        if wanted := [each for each in image.pip if owners.get(_name(each)) == index.url and index.packages]:
            yield f"  from_index {shlex.quote(index.url)} {shlex.join(wanted)}"
    yield f"  install_rest {install}"


def _name(requirement: str) -> str:
    return _plain(re.match(r"[A-Za-z0-9._-]*", requirement)[0])  # type: ignore[index]


def _plain(name: str) -> str:
    """As package indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _function(number: int, operation: Operation) -> str:
    return f"operation_{number}() {{ # {' '.join(operation.title.split())}\n{operation.script}\n}}\n"
