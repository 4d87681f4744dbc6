"""Hatchling build hook that adds the server's files: all of Berth's files that the client wheel lacks."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Checkout folders, and their locations in the wheel.
FOLDERS = {
    "platform/berth": "berth",
    "pools": "pools",
    "projects": "projects",
    "scheduler": "scheduler",
    "templates": "berth/templates",
}


class ServerFiles(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        checkout = Path(self.root).parents[1]
        build_data["force_include"].update(server_files(checkout))


def server_files(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of each server file in the checkout, with its path in the wheel."""
    tool = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]
    client = {checkout / path for path in tool["hatch"]["build"]["targets"]["wheel"]["only-include"]}
    for folder, place in FOLDERS.items():
        for file in sorted((checkout / folder).rglob("*")):
            is_cached = "__pycache__" in file.parts or file.suffix == ".pyc"
            if file.is_file() and not is_cached and client.isdisjoint([file, *file.parents]):
                yield str(file), f"{place}/{file.relative_to(checkout / folder).as_posix()}"
