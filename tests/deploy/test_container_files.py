"""Tests for the compose file and the Containerfile that need no container tools."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from django.core.management import get_commands

from tests.conftest import ROOT

CONTAINER = ROOT / "deploy" / "container"
COMPOSE: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
BERTH = {name: service for name, service in COMPOSE["services"].items() if name != "db"}


def started_module(command: list[str]) -> str:
    assert command[:2] == ["python", "-m"]
    return " ".join(command[2:4] if command[2] == "django" else command[2:3])


def test_compose_file_starts_the_processes_of_the_systemd_units() -> None:
    units = [file.read_text() for file in (ROOT / "deploy" / "systemd").glob("*.service")]
    started = re.findall(r"^ExecStart=\S+/python -m (django \S+|\S+)", "\n".join(units), re.MULTILINE)
    modules = {name: started_module(service["command"]) for name, service in BERTH.items()}
    assert sorted(modules.values()) == sorted(started)
    for module in modules.values():
        name, _, command = module.partition(" ")
        assert find_spec(name) is not None
        assert not command or command in get_commands()


def test_every_process_waits_for_the_migrations() -> None:
    waiting = {
        name
        for name, service in BERTH.items()
        if service["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    }
    assert waiting == set(BERTH) - {"migrate"}


def test_example_settings_are_documented_and_example_secrets_are_empty() -> None:
    text = (CONTAINER / "berth.env.example").read_text()
    settings = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", text, re.MULTILINE))
    guide = (ROOT / "docs" / "operations.md").read_text() + (ROOT / "docs" / "production.md").read_text()
    assert [name for name in settings if f"`{name}`" not in guide] == ["POSTGRES_PASSWORD"]
    secrets = {name for name in settings if re.search("PASSWORD|SECRET|TOKEN", name)}
    assert {settings[name] for name in secrets} == {"CHANGE-ME"}


def test_image_names_have_no_registry_host() -> None:
    names = re.findall(r"^ARG BASE_IMAGE=(.*)$", (CONTAINER / "Containerfile").read_text(), re.MULTILINE)
    names += re.findall(r"\$\{\w+_IMAGE:-([^}]*)\}", (CONTAINER / "compose.yaml").read_text())
    assert names == ["python:3.11-slim-bookworm", "berth", "postgres:17"]


def test_containerfile_copies_only_existing_paths() -> None:
    lines = (CONTAINER / "Containerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert [path for paths in copied for path in paths if not Path(ROOT / path).exists()] == []
