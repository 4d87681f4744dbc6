"""Run a function on a second database connection during a transaction."""

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection


def run_on_second_connection(work: Callable[[], object]) -> Any:
    """Return the result of `work`, or the exception that it raised. `work` must end within 20 seconds."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(work())
        except Exception as error:
            answer.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return answer[0]
