"""Tests of port links: who gets one, that it opens once and soon, and how long a visit lasts."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from berth.core.errors import Conflict, Forbidden, NotFound
from projects.acting import Acting
from projects.models import Audit, Membership, Phase, PortLink
from projects.services.people import tokens
from projects.services.workloads import ports
from projects.visits.proxy import OPEN
from tests.sessions_of_people import cookie_of
from tests.visits.conftest import Desk


def test_member_with_write_access_gets_an_audited_link(desk: Desk) -> None:
    for acting in (desk.cast.dave, desk.cast.carol, desk.cast.bob, desk.cast.alice):
        assert desk.ask("/", cookie=desk.visit(acting)).status_code == 200
    assert Audit.objects.filter(action="open port", after={"port": "lab"}).count() == 4


def test_viewer_is_refused_a_link_and_others_get_404(quiet_desk: Desk) -> None:
    with pytest.raises(Forbidden):
        quiet_desk.link(quiet_desk.cast.erin)
    with pytest.raises(NotFound):
        quiet_desk.link(quiet_desk.cast.grace)
    with pytest.raises(Forbidden, match="write"):
        quiet_desk.link(Acting.person(quiet_desk.cast.dave.user, scopes=frozenset({"read"})))  # type: ignore[arg-type]


def test_undeclared_port_cannot_be_opened(quiet_desk: Desk) -> None:
    with pytest.raises(NotFound, match="its ports are lab, other"):
        quiet_desk.link(port="5432")


def test_workload_that_is_not_running_has_no_link(quiet_desk: Desk) -> None:
    quiet_desk.workload.phase = Phase.SUSPENDED
    with pytest.raises(Conflict, match="is suspended"):
        quiet_desk.link()


def test_link_opens_once(desk: Desk) -> None:
    secret = desk.link()
    assert desk.ask(OPEN + secret).status_code == 303
    again = desk.ask(OPEN + secret)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_concurrent_uses_of_one_link_open_it_once(quiet_desk: Desk) -> None:
    secret, now = quiet_desk.link(), timezone.now()
    got = 0
    for _ in range(5):
        try:
            ports.redeem_link(secret, quiet_desk.workload.pk, "lab", now)
            got += 1
        except ports.NoVisit:
            pass
    assert got == 1


def test_link_is_valid_for_its_port_and_a_minute(quiet_desk: Desk) -> None:
    secret, now = quiet_desk.link(), timezone.now()
    with pytest.raises(ports.NoVisit):
        ports.redeem_link(secret, quiet_desk.workload.pk, "other", now)
    with pytest.raises(ports.NoVisit):
        ports.redeem_link(secret, quiet_desk.workload.pk, "lab", now + timedelta(seconds=61))
    assert ports.redeem_link(secret, quiet_desk.workload.pk, "lab", now)


def test_database_holds_neither_link_nor_cookie_in_clear(desk: Desk) -> None:
    secret = desk.link()
    cookie = desk.ask(OPEN + secret).cookies["berth_port"]
    row = str(PortLink.objects.values().get())
    assert secret not in row
    assert cookie not in row


def test_cookie_is_valid_for_its_own_port_only(desk: Desk) -> None:
    cookie = desk.visit()
    other = desk.origins.of(desk.workload.pk, "other").removeprefix("http://")
    assert desk.ask("/", cookie=cookie, headers={"Host": other}).status_code == 403


def test_visit_ends_when_access_is_revoked(quiet_desk: Desk) -> None:
    cookie = quiet_desk.enter()
    now = timezone.now()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    Membership.objects.filter(user=quiet_desk.cast.dave.user).delete()
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_visit_ends_with_the_token_that_requested_it(quiet_desk: Desk) -> None:
    token, _ = tokens.issue(acting=quiet_desk.cast.dave, name="t", scopes=["write"], expires_at=None)
    acting = replace(quiet_desk.cast.dave, token_id=token.pk)
    cookie, now = quiet_desk.enter(acting), timezone.now()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    tokens.revoke(acting=quiet_desk.cast.dave, token=token)
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_visit_ends_with_the_session_that_requested_it(quiet_desk: Desk) -> None:
    key = cookie_of(quiet_desk.cast.dave.user).partition("=")[2]
    cookie, now = quiet_desk.enter(replace(quiet_desk.cast.dave, session_key=key)), timezone.now()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    Session.objects.filter(session_key=key).delete()
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


@pytest.mark.parametrize("change", ["password", "account", "time", "signed out"])
def test_visit_ends_with(quiet_desk: Desk, change: str) -> None:
    cookie, now, user = quiet_desk.enter(), timezone.now(), quiet_desk.cast.dave.user
    assert user is not None
    if change == "password":
        user.set_password("another horse battery")
        user.save()
    elif change == "account":
        user.is_active = False
        user.save()
    elif change == "time":
        now += timedelta(hours=12)
    else:
        browser = Client()
        browser.force_login(user)
        browser.post("/logout")
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_visit_does_not_outlive_its_token(quiet_desk: Desk) -> None:
    soon = timezone.now() + timedelta(minutes=5)
    quiet_desk.link(Acting.person(quiet_desk.cast.dave.user, until=soon))  # type: ignore[arg-type]
    assert PortLink.objects.get().visit_until == soon


def test_cookie_works_for_the_next_run_but_not_between_runs(quiet_desk: Desk) -> None:
    cookie, now = quiet_desk.enter(), timezone.now()
    quiet_desk.workload.run = 2
    quiet_desk.workload.save()
    with pytest.raises(ports.PortClosed):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    quiet_desk.pod.run = 2
    quiet_desk.pod.save()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_unused_links_are_deleted(quiet_desk: Desk) -> None:
    for _ in range(20):
        quiet_desk.link()
    with pytest.raises(Conflict, match="unused links"):
        quiet_desk.link()
    assert quiet_desk.link(at=timezone.now() + timedelta(seconds=61))
    assert PortLink.objects.count() == 1
    assert ports.delete_links(before=timezone.now() + timedelta(days=1)) == 1
