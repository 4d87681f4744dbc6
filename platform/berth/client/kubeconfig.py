"""Read one context from the user's kubeconfig, with the files that it refers to."""

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from berth.core.problems import closest_match, suggest
from berth.core.wording.reasons import plain_reason

FILE_KEYS = ("certificate-authority", "client-certificate", "client-key")


def read_kubeconfig(file: str | None, context: str | None) -> str:
    """Return the kubeconfig in `file`, reduced to one context, by default the current one.

    The files that it refers to are included in the result. `file` defaults to the first file in KUBECONFIG,
    or to ~/.kube/config. Raises ValueError.
    """
    path = Path(
        file or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    ).expanduser()
    document = _load(path)
    name = context or document.get("current-context")
    entry = _find_entry(document, "contexts", name, path)
    selected = {"contexts": entry}
    for section, key in (("clusters", "cluster"), ("users", "user")):
        part = _find_entry(document, section, (entry.get("context") or {}).get(key), path)
        selected[section] = {**part, key: _inline_files(part.get(key) or {}, path)}
    lists = {section: [part] for section, part in selected.items()}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": name, **lists})


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the kubeconfig {path} cannot be read: {plain_reason(error)}") from None
    except yaml.YAMLError:
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a kubeconfig. Pass another file with --kubeconfig.")  # noqa: TRY004
    return document


def _find_entry(document: dict[str, Any], section: str, name: object, path: Path) -> dict[str, Any]:
    entries = {
        str(entry.get("name")): entry for entry in document.get(section) or () if isinstance(entry, dict)
    }
    if str(name) not in entries:
        names = sorted(entries)
        hint = suggest(str(name), names)
        if not closest_match(str(name), names):
            hint = f"Available entries: {hint or 'none'}."
        raise ValueError(f"{path} has no entry {name!r} in {section}. {hint}")
    return entries[str(name)]


def _inline_files(values: dict[str, Any], path: Path) -> dict[str, Any]:
    inline = dict(values)
    for key in FILE_KEYS:
        if name := inline.pop(key, None):
            try:
                content = (path.parent / name).read_bytes()
            except OSError as error:
                raise ValueError(
                    f"{path} refers to a file that cannot be read: {plain_reason(error)}"
                ) from None
            inline[f"{key}-data"] = base64.b64encode(content).decode()
    return inline
