"""Tests for `berth exec` in terminals and pipes."""

import os
import subprocess
import time
from typing import Any

from tests.channels.conftest import Screen, Site
from tests.contracts.pods import poll_until


def test_shell_on_a_terminal_is_resized_and_returns_its_exit_code(site: Site) -> None:
    screen = Screen(site, "exec", "-it", "train", "--", "env", "PS1=% ", "sh")
    screen.type("stty size; tty; echo $((40 + 2))\n")
    screen.wait_for("/dev/pts/")
    screen.wait_for("42")
    screen.resize(33, 99)
    screen.type("until [ \"$(stty size)\" = '33 99' ]; do sleep 0.1; done; echo re''sized\n")
    screen.wait_for("resized")
    other = Screen(site, "exec", "-it", "train", "--", "sh")
    other.type("echo se''cond\n")
    other.wait_for("second")
    screen.type("cat\n")
    screen.type("copied\n")
    screen.wait_for("copied\r\ncopied")  # a signal between fork and exec would be lost
    screen.type("\x03")  # Ctrl-C ends the command, not the shell
    screen.wait_for("^C\r\n% ")  # what is typed before the prompt may be discarded
    screen.type("exit 7\n")
    assert screen.program.wait(180) == 7
    mark = f"sleep 5000.{time.monotonic_ns()}"
    other.type(f"nohup {mark} &\n setsid {mark} &\n {mark}\n")
    poll_until(lambda: len(site.processes(mark)) == 3)
    other.program.kill()
    poll_until(lambda: not site.processes(mark))
    screen.close()
    other.close()
    closed = poll_until(
        lambda: [row for row in site.audit() if row[1] == "close_shell"], lambda rows: len(rows) == 2
    )
    assert sorted(str(row[2]["exit_code"]) for row in closed) == ["7", "None"]  # type: ignore[index]


def test_piped_command_copies_stdin_stdout_and_stderr(site: Site) -> None:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    data = os.urandom(3 * 2**20)
    program = site.start("exec", "-i", "train", "--", "sh", "-c", "cat; echo done >&2; exit 5", **pipes)
    output, errors = program.communicate(data, timeout=120)
    assert (output == data, errors, program.returncode) == (True, b"done\n", 5)
    program = site.start("exec", "train", "--", "no-such-program", **pipes)
    _, errors = program.communicate(timeout=120)
    assert (errors, program.returncode) == (b"berth: no-such-program: No such file or directory.\n", 127)
    program = site.start("exec", "train", "--pod", "worker-9", "--", "true", **pipes)
    _, errors = program.communicate(timeout=120)
    assert program.returncode == 4, errors
    assert b"There is no pod" in errors
