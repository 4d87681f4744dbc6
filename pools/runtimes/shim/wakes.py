"""Wake processes that wait for pods to change."""

import errno
import os


def wake_listeners(directory: str) -> None:
    """Wake all listeners in the directory. Delete sockets without a listener, and skip full sockets."""
    import _socket  # importing `socket` instead would take as long as starting Python

    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK)
    try:
        for name in os.listdir(directory):
            try:
                # Use the directory's descriptor, because socket paths are limited to 107 bytes.
                sock.sendto(b".", f"/proc/self/fd/{fd}/{name}")
            except OSError as error:
                if error.errno == errno.ECONNREFUSED:
                    _remove_socket(f"{directory}/{name}")
    finally:
        sock.close()
        os.close(fd)


def _remove_socket(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
