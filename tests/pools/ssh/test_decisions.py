"""Tests for the decisions about SSH hosts, and for the scripts that run on hosts."""

import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pools.engine.ssh_hosts import (
    RETRY_FIRST,
    RETRY_MAX,
    SILENT_AFTER,
    Host,
    HostState,
    HostTask,
    host_state,
    next_task,
    retry_delay,
)
from pools.providers.ssh.scripts import HostFacts, parse_facts, probe_script, uninstall_script

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = timedelta(hours=1)
JOINED = Host(is_touched=True, is_current=True, silent_for=timedelta(seconds=5))
SUITABLE = HostFacts(root="root", python="3.11.2", cpus=8)


@pytest.mark.parametrize(
    ("host", "task", "state"),
    [
        (Host(), HostTask.INSTALL, HostState.PENDING),
        (Host(is_pinned=False), HostTask.SCAN, HostState.UNVERIFIED),
        (JOINED, None, HostState.JOINED),
        (replace(JOINED, is_current=False), HostTask.INSTALL, HostState.JOINED),
        (replace(JOINED, silent_for=SILENT_AFTER), HostTask.INSTALL, HostState.SILENT),
        (replace(JOINED, is_busy=True), None, HostState.INSTALLING),
        (replace(JOINED, failures=1, retry_at=NOW + timedelta(seconds=1)), None, HostState.FAILING),
        (replace(JOINED, is_removed=True), None, HostState.REMOVING),
        (replace(JOINED, is_removed=True, silent_for=None), HostTask.UNINSTALL, HostState.REMOVING),
        (Host(is_removed=True), HostTask.FORGET, HostState.REMOVING),
    ],
)
def test_next_task_is_derived_from_the_host_state(
    host: Host, task: HostTask | None, state: HostState
) -> None:
    assert next_task(host, NOW, watched_for=LONG) is task
    assert host_state(host) is state


def test_time_before_a_berth_restart_does_not_count_as_host_silence() -> None:
    silent = replace(JOINED, silent_for=LONG)
    assert next_task(silent, NOW, watched_for=timedelta(seconds=10)) is None
    assert next_task(silent, NOW, watched_for=SILENT_AFTER) is HostTask.INSTALL


def test_retry_delay_is_capped_and_unaffected_by_a_clock_set_back() -> None:
    assert [retry_delay(failures) for failures in (1, 2, 3)] == [
        RETRY_FIRST,
        2 * RETRY_FIRST,
        4 * RETRY_FIRST,
    ]
    assert retry_delay(10_000) == RETRY_MAX
    failed = Host(failures=3, retry_at=NOW + RETRY_MAX + timedelta(seconds=1))
    assert next_task(failed, NOW, watched_for=LONG) is HostTask.INSTALL


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (SUITABLE, ""),
        (replace(SUITABLE, root=""), "cannot use sudo without a password"),
        (replace(SUITABLE, python="3.8.10"), "has Python 3.8.10. Install Python 3.9"),
        (replace(SUITABLE, python=""), "has no python3"),
        (replace(SUITABLE, missing=("curl", "tar")), "lacks required programs: curl, tar. Install them"),
        (replace(SUITABLE, agent_home="/var/lib/berth-machine", agent_installation="ours"), ""),
        (
            replace(SUITABLE, agent_home="/x/berth-machine", agent_url="https://b", agent_pool="old"),
            "an agent of https://b, pool old",
        ),
    ],
)
def test_unsuitable_hosts_are_reported_with_the_reason(facts: HostFacts, expected: str) -> None:
    problems = facts.problems("ours")
    assert len(problems) == bool(expected)
    assert expected in "".join(problems)


def test_probe_script_reports_hardware_and_an_installed_agent(tmp_path: Path) -> None:
    home = tmp_path / "it's here" / "berth-machine"
    home.mkdir(parents=True)
    settings = {"BERTH_INSTALLATION": "it's ours", "BERTH_POOL": "metal", "BERTH_URL": "https://b"}
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items()]
    (home / "environment").write_text("".join(lines))
    done = subprocess.run(
        ["sh", "-s"], input=probe_script(str(home), "/nowhere"), text=True, capture_output=True, check=True
    )
    facts = parse_facts(done.stdout)
    assert facts.cpus > 0
    assert facts.memory_mib > 0
    assert facts.disk_free_mib > 0
    assert facts.python.startswith("3.")
    if facts.root:
        assert (facts.agent_home, facts.agent_pool, facts.agent_url) == (str(home), "metal", "https://b")
        assert facts.agent_installation == "it's ours"


def test_malformed_host_facts_are_ignored() -> None:
    facts = parse_facts(
        "cpus=many\nmemory_mib=\x1b[31m9\nwelcome to this host\ngpu=NVIDIA L4\ngpu=NVIDIA L4\n"
    )
    assert (facts.cpus, facts.gpus) == (0, ("L4", "L4"))


@pytest.mark.parametrize("installation", ["ours", "theirs"])
def test_uninstallation_touches_only_files_of_this_installation(tmp_path: Path, installation: str) -> None:
    home = tmp_path / "berth-machine"
    home.mkdir()
    (home / "environment").write_text("BERTH_INSTALLATION=ours\n")
    (home / "download.17").write_text("of an interrupted installation")
    (tmp_path / "else").write_text("not Berth's")
    for _ in range(2):
        subprocess.run(["sh", "-s"], input=uninstall_script(str(home), installation), text=True, check=True)
    assert home.exists() == (installation == "theirs")
    assert (tmp_path / "else").exists()
