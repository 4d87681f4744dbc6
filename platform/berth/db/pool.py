"""Share database connections between the threads of a process."""

from django.db import DEFAULT_DB_ALIAS, connections

WAIT_SECONDS = 10


def pool_connections(size: int) -> None:
    """Let all threads of this process share at most `size` connections, before any of them connects.

    A web process serves requests on many threads. With a size of 0, each thread keeps its own connection.
    """
    if size:
        database = connections.settings[DEFAULT_DB_ALIAS]
        database["OPTIONS"]["pool"] = {"min_size": 1, "max_size": size, "timeout": WAIT_SECONDS}
        database["CONN_MAX_AGE"] = 0  # pooled connections are returned after each request
