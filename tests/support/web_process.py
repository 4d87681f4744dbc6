"""Web processes on the test's database, started as `berth up` starts them."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from django.conf import settings

from berth.server.up.address import bind_socket, socket_url, wait_until_ready

PROGRAM = ("-m", "berth.server.up.serve")


def is_running(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


@contextmanager
def web_processes(
    env: dict[str, str], home: Path, count: int = 1, program: Sequence[str] = PROGRAM
) -> Iterator[list[str]]:
    """Run `count` web processes with the test's secret key during the block, and yield their addresses."""
    env = {"BERTH_SECRET_KEY": settings.SECRET_KEY, **env, "BERTH_HOME": str(home)}
    running: list[subprocess.Popen[bytes]] = []
    addresses: list[str] = []
    try:
        for _ in range(count):
            with bind_socket("127.0.0.1", 0) as listening:
                number = listening.fileno()
                command = [sys.executable, *program, "--fd", str(number)]
                running.append(subprocess.Popen(command, env=env, pass_fds=(number,)))
                addresses.append(socket_url(listening))
        for web, address in zip(running, addresses, strict=True):
            assert wait_until_ready(address, should_continue=partial(is_running, web), seconds=90)
        yield addresses
    finally:
        for web in running:
            web.terminate()
        for web in running:
            web.wait(30)
