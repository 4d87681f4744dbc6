"""Tests for individual provider settings in the node pool commands."""

from tests.cli.cluster.test_cli_pools import pool, sent_body
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer


def test_repeated_provider_setting_options_are_combined(terminal: Terminal) -> None:
    server = StubServer(pool())
    sets = ["--set", "provider_settings.partition=gpu", "--set", "provider_settings.exclusive=false"]
    terminal.run("pool", "create", "train", *sets, server=server)
    assert sent_body(server)["provider_settings"] == {"partition": "gpu", "exclusive": False}


def test_editing_one_provider_setting_keeps_the_others(terminal: Terminal) -> None:
    stored = pool(provider_settings={"partition": "gpu", "time_limit": "24h"})
    server = StubServer(stored, stored)
    terminal.run("pool", "edit", "train", "--set", "provider_settings.time_limit=48h", server=server)
    assert sent_body(server) == {"provider_settings": {"partition": "gpu", "time_limit": "48h"}}
