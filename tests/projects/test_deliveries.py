"""Tests for deliveries by email, webhook and chat."""

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

from projects.delivering import http, rendering
from projects.delivering.destination import ForbiddenAddress, resolve_destination
from projects.models import Delivery, Phase, Workload
from projects.services import workloads
from projects.services.notifications import deliveries
from projects.services.notifications.subscriptions import send_test, subscribe
from projects.services.workloads.phase_transitions import change_phase
from tests.cast import Cast, training

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LOOPBACK = ["127.0.0.0/8"]


@dataclass
class Receiver:
    """A server that records requests and returns scripted responses."""

    url: str
    answers: list[int] = field(default_factory=list)
    response_body: bytes = b""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            recorder.requests.append(({**self.headers, "path": self.path}, body))
            self.send_response(recorder.answers.pop(0) if recorder.answers else 204)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(recorder.response_body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    recorder = Receiver(f"http://127.0.0.1:{server.server_port}/berth?key=1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield recorder
    server.shutdown()
    thread.join()
    server.server_close()


def submit_with_notification(cast: Cast, to: str, *on: str) -> Workload:
    document = training(notifications=[{"to": to, "on": list(on) or ["started", "failed"]}])
    return workloads.submit(actor=cast.dave, project=cast.vision, document=document, now=NOON)


def start(workload: Workload, message: str = "All pods that make the gang are running.") -> None:
    for frm, to in ((Phase.PENDING, Phase.STARTING), (Phase.STARTING, Phase.RUNNING)):
        assert change_phase(
            workload, expected=[frm], to=to, reason="Running", message=message, actor="scheduler", now=NOON
        )


def deliver(now: datetime = NOON) -> Delivery:
    row = Delivery.objects.get()
    deliveries.deliver(row.pk, now)
    row.refresh_from_db()
    return row


def test_webhook_is_signed_and_names_the_event(cast: Cast, receiver: Receiver, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS, settings.BERTH_WEBHOOK_SECRET = LOOPBACK, "a secret"
    workload = submit_with_notification(cast, receiver.url)
    start(workload)
    row = deliver()
    assert (row.state, row.attempts, row.kind, row.channel) == ("delivered", 1, "started", "webhook")
    ((headers, body),) = receiver.requests
    assert headers["path"] == "/berth?key=1"
    assert headers["X-Berth-Delivery"] == str(row.pk)
    timestamp, signed = (part.split("=")[1] for part in headers["X-Berth-Signature"].split(","))
    assert signed == hmac.new(b"a secret", timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    content = json.loads(body)
    assert (content["event"], content["workload"], content["project"]) == ("started", "train-1", "vision")


def test_notification_is_sent_by_email(cast: Cast, settings: Any) -> None:
    settings.BERTH_SENDS_MAIL = True
    start(submit_with_notification(cast, "dave@example.org"))
    assert deliver().state == "delivered"
    (email,) = mail.outbox
    assert (email.to, email.subject) == (["dave@example.org"], "vision/train-1 has started")
    assert "All pods" in email.body


def test_email_delivery_fails_without_a_mail_server(cast: Cast, settings: Any) -> None:
    settings.BERTH_SENDS_MAIL = False
    start(submit_with_notification(cast, "dave@example.org"))
    row = deliver()
    assert (row.state, row.last_error) == (
        "failed",
        "no mail server is configured. Ask an admin to set BERTH_EMAIL_URL",
    )


def test_test_message_is_sent_to_the_subscription_address(
    cast: Cast, receiver: Receiver, settings: Any
) -> None:
    settings.BERTH_NOTIFY_NETWORKS = LOOPBACK
    row = subscribe(actor=cast.carol, scope=cast.vision, to=receiver.url, events=["failed"])
    send_test(actor=cast.carol, subscription=row, now=NOON)
    assert deliver().state == "delivered"
    content = json.loads(receiver.requests[0][1])
    assert (content["event"], content["scope"]) == ("test", "vision")
    assert rendering.subject(content) == "Test message for vision"
    assert "carol requested this message." in rendering.plain_text(content)


def test_markup_in_a_chat_message_is_escaped(cast: Cast, receiver: Receiver, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS = LOOPBACK
    start(
        submit_with_notification(cast, f"slack:{receiver.url}"), "<!channel> & <https://evil.example|click>"
    )
    assert deliver().state == "delivered"
    text = json.loads(receiver.requests[0][1])["text"]
    assert text.startswith("*vision/train-1 has started*")
    assert "<" not in text


def test_delivery_is_retried_with_backoff_and_then_fails(
    cast: Cast, receiver: Receiver, settings: Any
) -> None:
    settings.BERTH_NOTIFY_NETWORKS = LOOPBACK
    receiver.answers = [503, 302, 500]
    start(submit_with_notification(cast, receiver.url))
    row, now, pauses = deliver(), NOON, []
    while row.state == "pending":
        assert row.last_error
        pauses.append((row.next_attempt_at - now).total_seconds())
        assert not deliveries.deliver(row.pk, row.next_attempt_at - timedelta(seconds=1)), (
            "no attempt before it is due"
        )
        now = row.next_attempt_at
        row = deliver(now)
    assert (row.state, row.attempts, pauses) == ("delivered", 4, [30, 60, 120])
    assert [request[0]["path"] for request in receiver.requests] == ["/berth?key=1"] * 4, (
        "redirects are not followed"
    )
    receiver.answers = [500] * 20
    Delivery.objects.update(state="pending", ended_at=None, attempts=0, next_attempt_at=now)
    for _ in range(deliveries.MAX_ATTEMPTS):
        row = deliver(Delivery.objects.get().next_attempt_at)
    assert (row.state, row.attempts) == ("failed", deliveries.MAX_ATTEMPTS)
    assert "responded with 500" in row.last_error


def test_delivery_is_not_retried_after_status_410(cast: Cast, receiver: Receiver, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS = LOOPBACK
    receiver.answers = [410]
    start(submit_with_notification(cast, receiver.url))
    assert deliver().state == "failed"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/", "http://[::1]/", "http://localhost/", "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://[::ffff:127.0.0.1]/",
        "http://10.1.2.3/", "http://192.168.0.1/", "http://[fe80::1]/", "http://2130706433/",
        "http://100.100.100.200/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[::7f00:1]/", "http://[2002:a9fe:a9fe::1]/", "http://[2002:a00:1::]/", "http://[fec0::1]/",
    ],
)  # fmt: skip
def test_internal_addresses_are_rejected(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        resolve_destination(url, ())


def test_allowed_networks_never_include_cloud_metadata() -> None:
    assert resolve_destination("http://10.1.2.3:8065/hooks/x?y=1", ["10.0.0.0/8"]).address == "10.1.2.3"
    with pytest.raises(ForbiddenAddress):
        resolve_destination("http://169.254.169.254/", ["0.0.0.0/0"])


def test_delivery_to_a_forbidden_address_is_not_retried(cast: Cast, receiver: Receiver) -> None:
    start(submit_with_notification(cast, receiver.url))
    row = deliver()
    assert (row.state, row.attempts) == ("failed", 1)
    assert "the Berth server itself" in row.last_error
    assert not receiver.requests


@pytest.mark.parametrize("url", [f"http://{'a' * 64}.example.org/", "http://a..example.org/"])
def test_delivery_to_an_invalid_host_name_is_not_retried(cast: Cast, url: str) -> None:
    start(submit_with_notification(cast, url))
    row = deliver()
    assert (row.state, row.attempts) == ("failed", 1)
    assert "is not a valid host name" in row.last_error


def test_error_response_is_stored_as_printable_text(cast: Cast, receiver: Receiver, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS = LOOPBACK
    receiver.answers, receiver.response_body = [500], b"no\x00room \xff\n<b>"
    start(submit_with_notification(cast, receiver.url))
    row = deliver()
    assert (row.state, row.last_error) == ("pending", "the server responded with 500: no room \ufffd <b>")


def test_slow_response_times_out(cast: Cast, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each byte arrives in time, but the response as a whole is too slow. Other deliveries must not wait for
    # it.
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.3)
    settings.BERTH_NOTIFY_NETWORKS = LOOPBACK
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def send_slowly() -> None:
            line, _ = listening.accept()
            with line, suppress(OSError):
                while not over.wait(0.05):
                    line.sendall(b"H")

        dripping = threading.Thread(target=send_slowly)
        dripping.start()
        start(submit_with_notification(cast, f"http://127.0.0.1:{listening.getsockname()[1]}/"))
        ending = threading.Timer(5, over.set)  # without the timeout, the delivery would never end
        ending.start()
        row = deliver()
        assert not over.is_set()
        ending.cancel()
        over.set()
        dripping.join()
    assert row.state == "pending"
    assert row.last_error


def test_delivery_that_crashes_its_task_is_marked_failed(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    start(submit_with_notification(cast, "dave@example.org"))

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
    assert (row.state, row.attempts) == ("failed", deliveries.MAX_ATTEMPTS)
    assert row.last_error == "the delivery task ended unexpectedly"


def test_only_subscribed_events_trigger_a_delivery(cast: Cast) -> None:
    workload = submit_with_notification(cast, "https://example.org/", "failed")
    start(workload)
    assert not Delivery.objects.exists()
    assert not change_phase(
        workload, expected=[Phase.STARTING], to=Phase.FAILED, reason="x", message="", actor="a", now=NOON
    )
    assert not Delivery.objects.exists()
    workloads.cancel(actor=cast.dave, workload=workload)
    assert not Delivery.objects.exists()


@pytest.mark.parametrize(("reason", "event"), [("Reclaimed", "preempted"), ("Consolidated", None)])
def test_subscribers_are_notified_of_preemption_but_not_of_consolidation(
    reason: str, event: str | None
) -> None:
    assert deliveries.event_kind(Phase.STOPPING, reason) == event


def test_delivery_is_requeued_after_its_task_is_lost(
    cast: Cast, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_SENDS_MAIL = True
    start(submit_with_notification(cast, "dave@example.org"))
    OrmQ.objects.all().delete()

    def interrupt(row: Delivery, now: datetime) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(deliveries, "send", interrupt)
        deliveries.deliver(Delivery.objects.get().pk, NOON)
    assert deliveries.enqueue_due_retries(NOON) == 0, "its task may still be running"
    assert deliveries.enqueue_due_retries(NOON + deliveries.ATTEMPT_TIMEOUT) == 1
    assert OrmQ.objects.count() == 1
    assert deliver(NOON + deliveries.ATTEMPT_TIMEOUT).state == "delivered"
    assert not deliveries.deliver(Delivery.objects.get().pk, NOON + timedelta(days=1)), (
        "the notification is delivered only once"
    )
    assert len(mail.outbox) == 1
