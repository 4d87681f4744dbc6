"""Tests for the supervisor, its children and adopted processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from berth.parent_bound import parent_bound_command
from berth.server.up.address import bind_socket, socket_url
from berth.server.up.claim import lock_home_directory, write_status
from berth.server.up.errors import StartupError
from berth.server.up.supervision.child import LOG_LIMIT, Child, Process, command_launcher
from tests.journeys.installation import until

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}


def make_child(tmp_path: Path, code: str) -> Child:
    return Child("one", command_launcher(lambda: [sys.executable, "-c", code], ENV), tmp_path / "one.log")


def run_and_end(child: Child, now: float) -> float | None:
    """Start the child, let it end, and return the time of its next start."""
    child.start(now)
    assert isinstance(child.process, subprocess.Popen)
    child.process.wait()
    assert child.poll_exit(now) == 3
    return child.restart_at


def test_repeatedly_failing_child_is_restarted_with_a_growing_delay(tmp_path: Path) -> None:
    child = make_child(tmp_path, "raise SystemExit(3)")
    pauses = [run_and_end(child, now=100.0) for _ in range(9)]
    assert pauses == [100.0, 100.25, 100.5, 101.0, 102.0, 104.0, 108.0, 110.0, 110.0]


def test_child_that_fails_after_a_long_run_is_restarted_immediately(tmp_path: Path) -> None:
    child = make_child(tmp_path, "raise SystemExit(3)")
    for _ in range(5):
        run_and_end(child, now=100.0)
    child.start(100.0)
    assert isinstance(child.process, subprocess.Popen)
    child.process.wait()
    assert child.poll_exit(131.0) == 3
    assert child.restart_at == 131.0


def test_failed_fork_of_a_child_is_retried(tmp_path: Path) -> None:
    def fail(log: BinaryIO) -> Process:
        raise ConnectionError("no answer")

    child = Child("one", fail, tmp_path / "one.log")
    child.start(100.0)
    assert child.restart_at == 100.0
    child.start(100.0)
    assert child.restart_at == 100.25
    assert "one could not be started: no answer" in child.log_tail()


def test_child_exit_is_reported_once(tmp_path: Path) -> None:
    child = make_child(tmp_path, "raise SystemExit(3)")
    run_and_end(child, now=0.0)
    assert child.poll_exit(1.0) is None


def test_long_log_is_rotated_while_its_writer_continues(tmp_path: Path) -> None:
    child = make_child(tmp_path, "import sys; print('first'); sys.stdout.flush(); sys.stdin.read()")
    child.log.write_bytes(b"x" * (LOG_LIMIT + 1))
    child.trim_log()
    assert child.log.stat().st_size == 0
    assert child.log.with_name("one.log.1").stat().st_size == LOG_LIMIT + 1
    child.start(0.0)
    until(lambda: "first" in child.log_tail())


SUPERVISED = """
import sys
from pathlib import Path
from berth.parent_bound import parent_bound_command
from berth.server.up.supervision.child import Child, command_launcher
from berth.server.up.supervision.orphans import adopt_orphans
from berth.server.up.supervision.supervisor import Supervisor

place = Path(sys.argv[1])
pod = (place / "pod.py")
pod.write_text('''
import os, signal, sys
from pathlib import Path
place = Path(sys.argv[1])
def end(*_):
    (place / "saved").write_text("yes")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
(place / "pod").write_text(str(os.getpid()))
while True:
    signal.pause()
''')
starter = f'''
import signal, subprocess, sys
subprocess.Popen([sys.executable, {str(pod)!r}, {str(place)!r}], start_new_session=True)
signal.pause()
'''
supervisor = Supervisor(lambda text: None)
supervisor.listen()
adopt_orphans()
launch = command_launcher(lambda: parent_bound_command([sys.executable, "-c", starter]), {})
supervisor.start(Child("starter", launch, place / "log"))
supervisor.run()
supervisor.stop()
print("stopped", flush=True)
"""


def test_pods_that_outlive_the_process_that_started_them_are_stopped(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISED, str(tmp_path)], env=ENV, stdout=subprocess.PIPE, text=True
    )
    pod_file = tmp_path / "pod"
    pod = int(until(lambda: pod_file.read_text() if pod_file.exists() else None))
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.communicate(timeout=180)[0] == "stopped\n"
    assert (tmp_path / "saved").read_text() == "yes"
    assert not Path(f"/proc/{pod}").exists()


def test_process_tied_to_its_parent_ends_when_the_parent_ends(tmp_path: Path) -> None:
    code = (
        "import os, signal, subprocess, sys, time\n"
        "from berth.parent_bound import parent_bound_command\n"
        "child = subprocess.Popen(parent_bound_command(['sleep', '1000'], death_signal=signal.SIGKILL))\n"
        "print(child.pid, flush=True); time.sleep(1000)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env=ENV, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    tied_one = int(parent.stdout.readline())
    until(lambda: Path(f"/proc/{tied_one}/cmdline").read_bytes().startswith(b"sleep"))
    parent.kill()
    parent.wait()
    until(lambda: not is_alive(tied_one))


def test_process_tied_to_an_ended_parent_never_starts(tmp_path: Path) -> None:
    line = parent_bound_command(["touch", str(tmp_path / "started")])
    line[3] = "1"  # a different process, as if the original process had exited
    assert subprocess.run(line, check=False).returncode == 0
    assert not (tmp_path / "started").exists()


def test_home_directory_is_locked_by_one_process(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with lock_home_directory(tmp_path) as lock:
        assert tmp_path.stat().st_mode & 0o777 == 0o700, "other users have no access"
        write_status(lock, "http://127.0.0.1:8123")
        with pytest.raises(StartupError, match=r"http://127\.0\.0\.1:8123"), lock_home_directory(tmp_path):
            pass
    with lock_home_directory(tmp_path):
        pass


def test_free_port_replaces_a_default_port_in_use_but_not_a_requested_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bind_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr("berth.server.up.address.FIRST_PORT", port)
        with bind_socket("127.0.0.1", None) as other:
            assert socket_url(other) != socket_url(listener)
        with pytest.raises(StartupError, match=str(port)):
            bind_socket("127.0.0.1", port)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
