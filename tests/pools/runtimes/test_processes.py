"""Test for finding the descendants of a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from pools.runtimes.shim.processes import current_descendants, descendants

# A process whose second thread has a child with a child of its own.
FAMILY = """
import subprocess, sys, threading
child = "import subprocess; subprocess.Popen(['sleep', '1000']); print('ready', flush=True); input()"
def start():
    subprocess.Popen([sys.executable, "-c", child]).wait()
threading.Thread(target=start).start()
"""


@pytest.mark.every_case
@pytest.mark.parametrize("find", [descendants, current_descendants])
def test_descendants_include_the_children_of_threads(find: Callable[[int], list[int]]) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=pipe, stdout=pipe, text=True) as family:
        assert family.stdin is not None
        assert family.stdout is not None
        assert family.stdout.readline() == "ready\n"
        child, grandchild = find(family.pid)
        assert find(child) == [grandchild]
        os.kill(grandchild, signal.SIGKILL)
        family.stdin.close()
