"""Run the task queue so that no worker outlives the parent process."""

import os
import signal
import sys

from berth.parent_bound import end_with_parent


def main() -> None:
    parent_pid = [os.getpid()]

    def record_pid() -> None:
        parent_pid[0] = os.getpid()

    os.register_at_fork(
        before=record_pid, after_in_child=lambda: end_with_parent(parent_pid[0], signal.SIGKILL)
    )

    # If setproctitle were installed, the queue would rename its processes.
    sys.modules["setproctitle"] = None  # type: ignore[assignment]

    import django
    from django.apps import apps

    if not apps.ready:
        django.setup()

    from django_q.cluster import Cluster

    from berth.server.tracing.spans import set_process_name

    set_process_name("tasks")
    Cluster().start()  # the qcluster command would set up Django again


if __name__ == "__main__":
    main()
