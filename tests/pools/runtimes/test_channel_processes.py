"""Test for the processes that are left when a container ends."""

import subprocess
import sys

# A shim with a relay that has not ended yet, and whose child is inside the container.
SHIM = """
import ctypes, os, time
from pools.runtimes.shim.channels.listener import Channels
from pools.runtimes.shim.pod import Pod
from pools.runtimes.shim.processes import descendants

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # the shim adopts orphans
readable, writable = os.pipe()
relay = os.fork()
if relay == 0:
    if os.fork() == 0:
        os.write(writable, b"!")
    time.sleep(1000)
os.read(readable, 1)
pod = Pod.__new__(Pod)
pod.namespaces, pod.helpers, pod.pid, pod.childless = None, set(), 0, False
pod.channels = Channels(pod)
pod.channels._relays[relay] = "mark"
pod._kill_own_processes()
print(descendants(os.getpid()))
"""


def test_relays_and_their_commands_are_reaped_before_the_container_is_removed() -> None:
    command = [sys.executable, "-c", SHIM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "[]\n"
