"""Tests for `berth ssh` with the real OpenSSH client and a real server."""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from projects.models import Membership, Workload
from tests.channels.conftest import PATIENCE, Screen, Site
from tests.channels.ssh_user import HOST, PIPES, SshUser
from tests.contracts.pods import poll_until

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")


@pytest.mark.heavy
def test_ssh_command_transfers_input_output_environment_variables_and_exit_code(user: SshUser) -> None:
    data = os.urandom(3 * 2**20)
    done = user.run(HOST, "cat; echo problem >&2; exit 5", data=data)
    assert (done.stdout == data, done.stderr, done.returncode) == (True, b"problem\n", 5)
    done = user.run("-o", "SetEnv=COLOR=blue\\ and\\ green BERTH_WORKLOAD_ID=x", HOST, 'echo "$COLOR"; pwd')
    color, directory = done.stdout.decode().splitlines()
    assert (color, directory) == ("blue and green", f"{user.site.runtime.root}/pods/{user.site.pod.pk}/work")
    assert user.run(HOST, "echo $TOKEN $RANK").stdout == b"hush 0\n", "sessions have the pod's variables"
    script = "".join(f"echo line {number}\n" for number in range(3))
    assert user.run("-T", HOST, data=script.encode()).stdout == b"line 0\nline 1\nline 2\n"
    assert user.run(HOST, "kill -KILL $$").returncode == 255, "ssh reports signals with this code"
    assert user.run(HOST, "no-such-program").returncode == 127
    done = user.run("-s", HOST, "netconf")
    assert (done.returncode, b"subsystem request failed" in done.stderr) == (255, True)


@pytest.mark.heavy
def test_shell_on_a_terminal_is_resized_and_interrupted(user: SshUser) -> None:
    screen = SshScreen(user, HOST)
    screen.type("stty size; tty; echo $((40 + 2)) $TERM\n")
    screen.wait_for("/dev/pts/")
    screen.wait_for("42 xterm")
    screen.resize(33, 99)
    screen.type("until [ \"$(stty size)\" = '33 99' ]; do sleep 0.1; done; echo re''sized\n")
    screen.wait_for("resized")
    screen.type("sed 's/^/re/'\n")
    screen.type("ady\n")
    screen.wait_for("ready")  # a signal between fork and exec would be lost
    screen.type("\x03")
    screen.wait_for("^C")
    screen.type("\nexit 7\n")
    assert screen.program.wait(PATIENCE) == 7
    screen.close()


class SshScreen(Screen):
    def __init__(self, user: SshUser, *arguments: str) -> None:
        self._user = user
        super().__init__(user.site, *arguments)

    def _start(self, site: Site, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        return self._user.start("ssh", *arguments, **options)


@pytest.mark.heavy
def test_background_processes_end_when_the_shared_connection_closes(user: SshUser, tmp_path: Path) -> None:
    control = ("-o", f"ControlPath={tmp_path}/c")
    master = user.start("ssh", "-N", "-o", "ControlMaster=yes", *control, HOST, **PIPES)
    poll_until((tmp_path / "c").exists)
    mark = f"5000.{time.monotonic_ns()}"
    done = user.run(*control, HOST, f"nohup sleep {mark} > /dev/null 2>&1 & echo started")
    assert done.stdout == b"started\n"
    assert user.run(*control, HOST, "echo second").stdout == b"second\n"
    poll_until(lambda: len([row for row in user.site.audit() if row[1] == "close_shell"]) == 2)
    assert user.site.processes(f"sleep {mark}"), "the process outlives the session that started it"
    master.kill()
    poll_until(lambda: not user.site.processes(f"sleep {mark}"))
    (opened, *_), (_, _, after) = poll_until(lambda: user.site.audit("_ssh"), lambda rows: len(rows) == 2)
    assert opened == "dave"
    assert set(after) == {"pod", "run", "seconds", "exit_code"}  # type: ignore[call-overload]


@pytest.mark.heavy
def test_signals_are_forwarded_to_the_command(user: SshUser) -> None:
    import asyncio

    import asyncssh

    async def run() -> tuple[Any, Any]:
        command = [*user.proxy_command(), HOST]
        hosts = str(user.home / "settings" / "ssh" / "known_hosts")
        options: dict[str, Any] = {"known_hosts": hosts, "host_key_alias": "berth", "config": None}
        async with asyncssh.connect("berth", proxy_command=command, username="any", **options) as connection:
            trapping = await connection.create_process(
                "trap 'echo caught; exit 3' USR1; echo up; while :; do sleep 0.1; done"
            )
            assert await trapping.stdout.readline() == "up\n"
            trapping.send_signal("USR1")
            first = await trapping.wait()
            killed = await connection.create_process("echo up; exec sleep 1000")
            assert await killed.stdout.readline() == "up\n"
            killed.terminate()
            return first, await killed.wait()

    before = dict(os.environ)
    os.environ.update(user.env)
    try:
        first, second = asyncio.run(run())
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert (first.exit_status, first.stdout) == (3, "caught\n")
    assert second.exit_signal[0] == "TERM"


@pytest.mark.heavy  # tests/channels/test_exec.py checks the same rules for commands
def test_connection_ends_with_the_reason_when_the_pod_ends_or_the_role_is_revoked(user: SshUser) -> None:
    def end_by(end: Callable[[], object]) -> bytes:
        started = user.start("ssh", HOST, "echo up; exec sleep 1000", **PIPES)
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        end()
        _, errors = started.communicate(timeout=PATIENCE)
        assert started.returncode == 255
        return errors

    role = Membership.objects.get(user=user.site.cast.dave.user)
    assert end_by(role.delete), "the message depends on which of the permissions is noticed first"
    Membership.objects.create(user=user.site.cast.dave.user, project=user.site.cast.vision, role="member")
    errors = end_by(lambda: user.site.runtime.stop(str(user.site.pod.pk), 0))
    assert b"The pod has ended" in errors


def reject(user: SshUser, host: str) -> str:
    done = user.run(host, "true")
    assert done.returncode == 255
    return done.stderr.decode()


@pytest.mark.heavy
def test_host_name_can_identify_a_workload_or_a_pod(user: SshUser) -> None:
    assert "Workload vision/other does not exist" in reject(user, "other.vision.berth")
    assert "There is no pod worker-7" in reject(user, f"worker-7.{HOST}")
    assert "is not a valid pod host name" in reject(user, "a.b.c.d.berth")
    assert user.run(f"worker-0.{HOST}", "echo fine").stdout == b"fine\n"
    assert user.run(f"{user.site.workload_id}.berth", "echo fine").stdout == b"fine\n"


@pytest.mark.heavy  # tests/channels/test_exec.py checks the same rules for commands
def test_ssh_connection_without_permission_is_rejected_with_the_reason(user: SshUser) -> None:
    for person, reason in (("erin", "You need the project admin role"), ("grace", "does not exist")):
        user.env["BERTH_TOKEN"] = user.site.secret(getattr(user.site.cast, person))
        assert reason in reject(user, HOST)
    user.env["BERTH_TOKEN"] = user.site.secret(user.site.cast.dave)
    Workload.objects.update(phase="pending")
    assert "train is pending" in reject(user, HOST)


@pytest.mark.heavy
def test_ssh_command_connects_without_settings_and_passes_options_to_openssh(
    site: Site, tmp_path: Path
) -> None:
    user = SshUser(site, tmp_path / "home")
    done = user.berth("ssh", "train", "--", "-o", "SetEnv=COLOR=red", "echo", "$COLOR")
    assert (done.returncode, done.stdout) == (0, b"red\n"), done.stderr
    assert user.berth("ssh", "vision/train", "--pod", "worker-0", "--", "exit 4").returncode == 4
    rejected = site.run("ssh", "missing", environment=user.env)
    assert (rejected.returncode, "missing does not exist" in rejected.stderr) == (4, True)
    rejected = site.run("ssh", environment=user.env)
    assert (rejected.returncode, "Specify a workload, or use --config" in rejected.stderr) == (2, True)


def test_ssh_settings_are_private_and_included_once_before_the_users_settings(user: SshUser) -> None:
    before = "Host other\n    User me\n"
    included = user.config.read_text()
    user.config.write_text(before)
    user.config.chmod(0o644)
    for _ in range(2):
        user.include_hosts()
        assert user.config.read_text() == f"{included}{before}"
    assert stat.S_IMODE(user.config.stat().st_mode) == 0o644
    directory = user.home / "settings" / "ssh"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}
    marker = user.home / "marker"
    done = user.run(f"x'$(touch {marker})'.berth", "true")
    assert (done.returncode, marker.exists()) == (255, False), "no shell may read a host name"
