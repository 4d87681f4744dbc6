"""Tests for individual provider settings in the node pool commands."""

from pathlib import Path

from tests.cli.cluster.test_cli_pools import pool, sent_body
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer


def test_repeated_provider_setting_options_are_combined(terminal: Terminal) -> None:
    server = StubServer(pool())
    sets = ["--set", "provider_settings.partition=gpu", "--set", "provider_settings.exclusive=false"]
    terminal.run("pool", "create", "train", *sets, server=server)
    assert sent_body(server)["provider_settings"] == {"partition": "gpu", "exclusive": False}


def test_editing_one_provider_setting_keeps_the_other_settings(terminal: Terminal) -> None:
    stored = pool(provider_settings={"partition": "gpu", "time_limit": "24h"})
    server = StubServer(stored, stored)
    terminal.run("pool", "edit", "train", "--set", "provider_settings.time_limit=48h", server=server)
    assert sent_body(server) == {"provider_settings": {"partition": "gpu", "time_limit": "48h"}}


def test_slurm_token_is_read_from_a_file(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("SLURM_JWT=a.b.c\n")
    server = StubServer(pool(), pool())
    terminal.run("pool", "create", "train", "--slurm-token", str(tmp_path / "token"), server=server)
    assert sent_body(server)["slurm_token"] == "SLURM_JWT=a.b.c\n"


def test_slurm_token_on_the_command_line_is_rejected_and_not_repeated(terminal: Terminal) -> None:
    result = terminal.run("pool", "edit", "train", "--slurm-token", "eyJ.secret.c")
    assert result.exit_code == 2
    assert "--slurm-token: the file cannot be read: No such file or directory" in result.stderr
    assert "secret" not in result.stderr


LOGIN = ["--set", "provider_settings.login={address: login.example.org, user: berth}"]


def test_login_node_key_can_be_a_secret_or_a_file(terminal: Terminal, tmp_path: Path) -> None:
    server = StubServer(pool())
    terminal.run("pool", "create", "train", *LOGIN, "--key", "secret:hpc", server=server)
    login = {"address": "login.example.org", "user": "berth"}
    assert sent_body(server)["provider_settings"] == {"login": {**login, "key": "secret:hpc"}}

    (tmp_path / "key").write_text("PRIVATE")
    named = ["--set", "provider_settings.login={address: login.example.org, user: berth, key: secret:hpc}"]
    server = StubServer(pool())
    terminal.run("pool", "create", "train", *named, "--key", str(tmp_path / "key"), server=server)
    assert sent_body(server)["ssh_keys"] == {"hpc": "PRIVATE"}


def test_key_option_requires_ssh_hosts_or_a_slurm_login_node(terminal: Terminal) -> None:
    result = terminal.run("pool", "create", "train", "--key", "secret:hpc")
    assert result.exit_code == 2
    assert "requires --hosts for SSH hosts, or provider_settings.login for Slurm" in result.stderr
