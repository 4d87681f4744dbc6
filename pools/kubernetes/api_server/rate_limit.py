"""Rate limit for requests to one API server."""

import threading
import time
from collections.abc import Callable

REQUESTS_PER_SECOND = 200.0
BURST = 400
PAUSE_MAX = 30.0  # maximum pause in seconds, even if a server requests a longer one


class RateLimit:
    """Rate limit that all threads share.

    After a burst, requests are delayed. `clock` returns the time in seconds, and `sleep` waits for a number
    of seconds.
    """

    def __init__(
        self, per_second: float = REQUESTS_PER_SECOND, burst: int = BURST,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._interval, self._burst, self._clock, self._sleep = 1 / per_second, burst, clock, sleep
        self._lock = threading.Lock()
        self._next = clock()  # time at which the next request would be due without bursts

    def wait(self) -> None:
        """Wait until a request may be sent."""
        with self._lock:
            now = self._clock()
            self._next = max(self._next, now - self._interval * (self._burst - 1))
            delay = self._next - now
            self._next += self._interval
        if delay > 0:
            self._sleep(delay)

    def pause(self, seconds: float) -> None:
        """Delay all requests by the given number of seconds, because the server is overloaded."""
        with self._lock:
            self._next = max(self._next, self._clock() + min(max(seconds, 0.0), PAUSE_MAX))
