"""Notifications named in a workload are delivered by email, webhook and chat."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.core import mail
from django_q.models import OrmQ

from projects.delivering import http
from projects.delivering.destination import Refused, destination
from projects.models import Delivery, Phase, Workload
from projects.services import workloads
from projects.services.notifications import deliveries
from projects.services.workloads.moves import move
from tests.cast import Cast, training

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HERE = ["127.0.0.0/8"]


@dataclass
class Receiver:
    """A server that writes down what it is sent, and answers as it is told."""

    url: str
    answers: list[int] = field(default_factory=list)
    says: bytes = b""
    letters: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.letters.append(({**self.headers, "path": self.path}, body))
            self.send_response(found.answers.pop(0) if found.answers else 204)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(found.says)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_port}/berth?key=1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def told(cast: Cast, to: str, *on: str) -> Workload:
    document = training(notifications=[{"to": to, "on": list(on) or ["started", "failed"]}])
    return workloads.submit(acting=cast.dave, project=cast.vision, document=document, now=NOON)


def starts(workload: Workload, message: str = "All pods that make the gang are running.") -> None:
    for frm, to in ((Phase.PENDING, Phase.STARTING), (Phase.STARTING, Phase.RUNNING)):
        assert move(
            workload, expected=[frm], to=to, reason="Running", message=message, actor="scheduler", now=NOON
        )


def carried(now: datetime = NOON) -> Delivery:
    row = Delivery.objects.get()
    deliveries.deliver(row.pk, now)
    row.refresh_from_db()
    return row


def test_a_letter_is_signed_and_says_what_happened(cast: Cast, receiver: Receiver, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS, settings.BERTH_WEBHOOK_SECRET = HERE, "a secret"
    workload = told(cast, receiver.url)
    starts(workload)
    row = carried()
    assert (row.state, row.tries, row.kind, row.channel) == ("delivered", 1, "started", "webhook")
    ((headers, body),) = receiver.letters
    assert headers["path"] == "/berth?key=1"
    assert headers["X-Berth-Delivery"] == str(row.pk)
    when, signed = (part.split("=")[1] for part in headers["X-Berth-Signature"].split(","))
    assert signed == hmac.new(b"a secret", when.encode() + b"." + body, hashlib.sha256).hexdigest()
    content = json.loads(body)
    assert (content["event"], content["workload"], content["project"]) == ("started", "train-1", "vision")


def test_a_mailbox_gets_a_mail(cast: Cast, settings: Any) -> None:
    settings.BERTH_SENDS_MAIL = True
    starts(told(cast, "dave@example.org"))
    assert carried().state == "delivered"
    (letter,) = mail.outbox
    assert (letter.to, letter.subject) == (["dave@example.org"], "vision/train-1 has started")
    assert "All pods" in letter.body


def test_without_a_mail_server_the_log_says_so(cast: Cast, settings: Any) -> None:
    settings.BERTH_SENDS_MAIL = False
    starts(told(cast, "dave@example.org"))
    row = carried()
    assert (row.state, row.last_error) == ("given_up", "no mail server is configured (BERTH_EMAIL_URL)")


def test_a_chat_gets_words_in_which_nothing_of_strangers_means_anything(
    cast: Cast, receiver: Receiver, settings: Any
) -> None:
    settings.BERTH_NOTIFY_NETWORKS = HERE
    starts(told(cast, f"slack:{receiver.url}"), "<!channel> & <https://evil.example|click>")
    assert carried().state == "delivered"
    text = json.loads(receiver.letters[0][1])["text"]
    assert text.startswith("*vision/train-1 has started*")
    assert "<" not in text


def test_what_is_not_taken_is_tried_again_ever_later_and_given_up_at_last(
    cast: Cast, receiver: Receiver, settings: Any
) -> None:
    settings.BERTH_NOTIFY_NETWORKS = HERE
    receiver.answers = [503, 302, 500]
    starts(told(cast, receiver.url))
    row, now, pauses = carried(), NOON, []
    while row.state == "waiting":
        assert row.last_error
        pauses.append((row.due_at - now).total_seconds())
        assert not deliveries.deliver(row.pk, row.due_at - timedelta(seconds=1)), "not before its time"
        now = row.due_at
        row = carried(now)
    assert (row.state, row.tries, pauses) == ("delivered", 4, [30, 60, 120])
    assert [letter[0]["path"] for letter in receiver.letters] == ["/berth?key=1"] * 4, "no redirects"
    receiver.answers = [500] * 20
    Delivery.objects.update(state="waiting", ended_at=None, tries=0, due_at=now)
    for _ in range(deliveries.MAX_ATTEMPTS):
        row = carried(Delivery.objects.get().due_at)
    assert (row.state, row.tries) == ("given_up", deliveries.MAX_ATTEMPTS)
    assert "answered 500" in row.last_error


def test_a_receiver_that_is_gone_is_not_asked_again(cast: Cast, receiver: Receiver, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS = HERE
    receiver.answers = [410]
    starts(told(cast, receiver.url))
    assert carried().state == "given_up"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/", "http://[::1]/", "http://localhost/", "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://[::ffff:127.0.0.1]/",
        "http://10.1.2.3/", "http://192.168.0.1/", "http://[fe80::1]/", "http://2130706433/",
        "http://100.100.100.200/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::7f00:1]/",
        "http://[::7f00:1]/", "http://[2002:a9fe:a9fe::1]/", "http://[2002:a00:1::]/", "http://[fec0::1]/",
    ],
)  # fmt: skip
def test_nobody_makes_berth_talk_to_itself_or_its_neighbours(url: str) -> None:
    with pytest.raises(Refused):
        destination(url, ())


def test_what_the_operator_allows_may_be_called_but_never_the_clouds_metadata() -> None:
    assert destination("http://10.1.2.3:8065/hooks/x?y=1", ["10.0.0.0/8"]).address == "10.1.2.3"
    with pytest.raises(Refused):
        destination("http://169.254.169.254/", ["0.0.0.0/0"])


def test_an_address_that_may_not_be_called_is_given_up_at_once(cast: Cast, receiver: Receiver) -> None:
    starts(told(cast, receiver.url))
    row = carried()
    assert (row.state, row.tries) == ("given_up", 1)
    assert "the Berth server itself" in row.last_error
    assert not receiver.letters


@pytest.mark.parametrize("url", [f"http://{'a' * 64}.example.org/", "http://a..example.org/"])
def test_a_name_that_no_machine_can_have_is_given_up_at_once(cast: Cast, url: str) -> None:
    starts(told(cast, url))
    row = carried()
    assert (row.state, row.tries) == ("given_up", 1)
    assert "is not a host name" in row.last_error


def test_what_a_receiver_says_is_kept_as_far_as_it_is_text(
    cast: Cast, receiver: Receiver, settings: Any
) -> None:
    settings.BERTH_NOTIFY_NETWORKS = HERE
    receiver.answers, receiver.says = [500], b"no\x00room \xff\n<b>"
    starts(told(cast, receiver.url))
    row = carried()
    assert (row.state, row.last_error) == ("waiting", "the server answered 500: no room \ufffd <b>")


def test_a_receiver_that_answers_drop_by_drop_is_not_waited_for(
    cast: Cast, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each drop comes in time, the whole never would: others' news must not wait behind it."""
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.3)
    settings.BERTH_NOTIFY_NETWORKS = HERE
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            line, _ = listening.accept()
            with line, suppress(OSError):
                while not over.wait(0.05):
                    line.sendall(b"H")

        dripping = threading.Thread(target=drip)
        dripping.start()
        starts(told(cast, f"http://127.0.0.1:{listening.getsockname()[1]}/"))
        ending = threading.Timer(5, over.set)  # without the patience this would last for ever
        ending.start()
        row = carried()
        assert not over.is_set()
        ending.cancel()
        over.set()
        dripping.join()
    assert row.state == "waiting"
    assert row.last_error


def test_one_that_kills_whoever_carries_it_is_given_up(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(told(cast, "dave@example.org"))

    def killed(row: Delivery, now: datetime) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(deliveries, "send", killed)
    row, now = Delivery.objects.get(), NOON
    for _ in range(deliveries.MAX_ATTEMPTS):
        with pytest.raises(KeyboardInterrupt):
            deliveries.deliver(row.pk, now)
        now += deliveries.ATTEMPT_TIMEOUT
    assert not deliveries.deliver(row.pk, now)
    row.refresh_from_db()
    assert (row.state, row.tries) == ("given_up", deliveries.MAX_ATTEMPTS)
    assert row.last_error == "the delivery task died"


def test_only_what_was_asked_for_is_told_and_only_if_it_happened(cast: Cast) -> None:
    workload = told(cast, "https://example.org/", "failed")
    starts(workload)
    assert not Delivery.objects.exists()
    assert not move(
        workload, expected=[Phase.STARTING], to=Phase.FAILED, reason="x", message="", actor="a", now=NOON
    )
    assert not Delivery.objects.exists()
    workloads.cancel(acting=cast.dave, workload=workload)
    assert not Delivery.objects.exists()


@pytest.mark.parametrize(("reason", "news"), [("Reclaimed", "preempted"), ("Consolidated", None)])
def test_giving_way_is_told_and_moving_is_not(reason: str, news: str | None) -> None:
    assert deliveries.event_kind(Phase.STOPPING, reason) == news


def test_one_whose_carrier_died_is_due_again(
    cast: Cast, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_SENDS_MAIL = True
    starts(told(cast, "dave@example.org"))
    OrmQ.objects.all().delete()

    def dying(row: Delivery, now: datetime) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(deliveries, "send", dying)
        deliveries.deliver(Delivery.objects.get().pk, NOON)
    assert deliveries.enqueue_due(NOON) == 0, "it may still be on its way"
    assert deliveries.enqueue_due(NOON + deliveries.ATTEMPT_TIMEOUT) == 1
    assert OrmQ.objects.count() == 1
    assert carried(NOON + deliveries.ATTEMPT_TIMEOUT).state == "delivered"
    assert not deliveries.deliver(Delivery.objects.get().pk, NOON + timedelta(days=1)), "once is enough"
    assert len(mail.outbox) == 1
