"""Two threads that send a session's calls and receive the outcomes."""

import threading
import time
from collections.abc import Callable

from berth.client.errors import ClientError
from berth.client.sessions import paths
from berth.client.sessions.ledger import Ledger
from berth.client.transport import Transport


class Post:
    """Runs from `start` to `stop`. Whatever ends it early is told to every call that is outstanding."""

    def __init__(self, transport: Transport, session: str, ledger: Ledger) -> None:
        self._transport, self._session, self._ledger = transport, session, ledger
        self._news = threading.Condition()
        self._stopped = False
        self._after = 0
        ledger.changed = self._tell
        self._threads = [
            threading.Thread(target=self._guarded, args=(step,), name=f"berth-{name}", daemon=True)
            for name, step in (("send", self._send), ("receive", self._receive))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """What is outstanding stays so; nothing is sent or fetched any more."""
        self._stopped = True
        self._tell()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5.0)

    def wait_until_done(self) -> None:
        with self._news:
            while self._ledger.outstanding and not self._stopped:
                self._news.wait(1.0)

    def _guarded(self, step: Callable[[], bool]) -> None:
        """`step` returns whether it did anything; when not, news are waited for."""
        reach = paths.Reach()
        while not self._stopped and self._ledger.fatal is None:
            try:
                did = step()
                reach.regained()
            except ClientError as error:
                if reach.is_lost(error, time.monotonic()):
                    self._ledger.fail(paths.end_of(error))
                    return
                time.sleep(paths.RETRY_SECONDS)
                continue
            except Exception as error:  # nobody would ever be told otherwise
                self._ledger.fail(error)
                return
            if not did:
                with self._news:
                    self._news.wait(0.5)

    def _send(self) -> bool:
        dropped = self._ledger.given_up()
        if dropped:
            self._transport.post(f"sessions/{self._session}/calls/drop", paths.drop_body(dropped))
        batch = self._ledger.batch()
        if not batch:
            return bool(dropped)
        try:
            answer = self._transport.ask(
                "POST", f"sessions/{self._session}/calls", content=paths.calls_body(batch),
                headers=paths.FRAMES, repeatable=True,
            )  # fmt: skip
        except ClientError as error:
            self._ledger.unsent(batch)
            if not paths.is_for_later(error):
                raise
            time.sleep(paths.RETRY_SECONDS)
            return True
        self._ledger.sent(answer.json()["broadcasts"])
        return True

    def _receive(self) -> bool:
        if not self._ledger.outstanding:
            return False
        if self._ledger.outstanding > paths.FEW:
            time.sleep(paths.GATHER_SECONDS)
        params = {"after": self._after, "wait": paths.WAIT}
        answer = self._transport.ask("GET", f"sessions/{self._session}/results", params=params)
        self._after = paths.take_results(self._ledger, answer.content, self._after)
        return True

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()
