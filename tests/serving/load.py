"""Load generator that records the outcome of every request."""

import threading
import time
from dataclasses import dataclass, field

from projects.serving.base import ServingError
from projects.serving.http_client import HttpClient
from tests.serving.conftest import HERE

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """The outcome of one request. `failure` is the failure reason, if any. Times are in seconds."""

    sent_at: float
    seconds: float
    failure: str = ""


@dataclass
class Load:
    """Load from `clients` parallel clients. Each client sends one request after another."""

    address: str
    tokens: int
    clients: int = 0
    requests: list[Request] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    @property
    def failed(self) -> list[Request]:
        return [request for request in self.requests if request.failure]

    def set(self, clients: int) -> None:
        self.clients = clients
        for number in range(len(self._threads), clients):
            thread = threading.Thread(target=self._client, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Wait for the responses to all requests in flight, then stop."""
        self.clients = -1
        for thread in self._threads:
            thread.join(PATIENCE)

    def _client(self, number: int) -> None:
        http_client = HttpClient(HERE, seconds=PATIENCE)
        body = {"text": "a question", "sampling_params": {"max_new_tokens": self.tokens}}
        while self.clients >= 0:
            if number >= self.clients:
                time.sleep(0.05)
                continue
            sent_at = self.now
            failure = ""
            try:
                http_client.post(self.address, "/generate", body).raise_for_status()
            except ServingError as error:
                failure = str(error)
            self.requests.append(Request(sent_at, self.now - sent_at, failure))
