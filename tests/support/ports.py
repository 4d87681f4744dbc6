"""Find free ports for servers that cannot choose a port themselves."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

# Above the ports that Berth assigns to pods, and below those that Linux assigns to connections: no other
# process takes such a port between this test's choice and the start of its server.
FIRST_PORT, LAST_PORT = 32001, 32767


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that no process uses. All test processes of a machine take turns."""
    path = Path(tempfile.gettempdir()) / f"berth-test-ports-{os.getuid()}"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or LAST_PORT)
        for _ in range(FIRST_PORT, LAST_PORT + 1):
            port = port + 1 if FIRST_PORT <= port < LAST_PORT else FIRST_PORT
            if _is_free(address, port):
                file.truncate(0)
                file.write(str(port))
                return port
    raise AssertionError(f"all ports from {FIRST_PORT} to {LAST_PORT} are in use")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
