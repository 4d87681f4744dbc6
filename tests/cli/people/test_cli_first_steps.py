"""Tests that the first commands in the guides work exactly as printed."""

import re
import shlex
from typing import Any

import pytest

from tests.cast import Cast
from tests.cli.conftest import ROOT, Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_token_commands_in_the_guides_work_after_a_login(berth: Berth, cast: Cast, live_server: Any) -> None:
    cast.dave.user.set_password("a-long-password")
    cast.dave.user.save()
    commands = [
        command
        for name in ("README.md", "docs/api.md", "docs/cli/sign-in.md")
        for command in re.findall(r"berth token create \w+ --[^`\n]+", (ROOT / name).read_text())
    ]
    assert len(commands) == 3
    signed_in = berth("login", live_server.url, "-u", "dave", "--password-stdin", typed="a-long-password\n")
    assert signed_in.returncode == 0, signed_in.stderr
    for number, command in enumerate(commands):
        words = shlex.split(command)[1:]
        words[2] = f"ci-{number}"
        done = berth(*words)
        assert done.returncode == 0, (command, done.stderr)


def test_listing_nodes_of_an_unknown_pool_fails(berth: Berth, cast: Cast) -> None:
    token = token_of(cast.alice)
    missing = berth("node", "list", "--pool", "metal", BERTH_TOKEN=token)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "pool: does not exist; received 'metal'; allowed: local" in missing.stderr
    empty = berth("node", "list", "--pool", cast.pool.name, BERTH_TOKEN=token)
    assert empty.returncode == 0, empty.stderr


def test_every_line_of_a_pool_description_has_a_label_and_a_value(berth: Berth, cast: Cast) -> None:
    lines = berth("pool", "describe", cast.pool.name, BERTH_TOKEN=token_of(cast.alice)).stdout.splitlines()
    assert lines and all(re.match(r"[A-Z][A-Za-z ]*: +\S", line) for line in lines)
