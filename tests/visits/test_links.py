"""Claims about links: who gets one, that it opens once and soon, and how long a visit counts."""

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


def test_who_may_act_on_the_workload_gets_a_link_and_the_audit_says_so(desk: Desk) -> None:
    for acting in (desk.cast.dave, desk.cast.carol, desk.cast.bob, desk.cast.alice):
        assert desk.ask("/", cookie=desk.visit(acting)).status_code == 200
    assert Audit.objects.filter(action="open port", after={"port": "lab"}).count() == 4


def test_who_only_sees_it_gets_none_and_to_others_it_is_not_there(quiet_desk: Desk) -> None:
    with pytest.raises(Forbidden):
        quiet_desk.link(quiet_desk.cast.erin)
    with pytest.raises(NotFound):
        quiet_desk.link(quiet_desk.cast.grace)
    with pytest.raises(Forbidden, match="write"):
        quiet_desk.link(Acting.person(quiet_desk.cast.dave.user, scopes=frozenset({"read"})))  # type: ignore[arg-type]


def test_a_port_that_the_document_does_not_name_cannot_be_opened(quiet_desk: Desk) -> None:
    with pytest.raises(NotFound, match="its ports are lab, other"):
        quiet_desk.link(port="5432")


def test_a_workload_that_does_not_run_has_nothing_to_open(quiet_desk: Desk) -> None:
    quiet_desk.workload.phase = Phase.SUSPENDED
    with pytest.raises(Conflict, match="is suspended"):
        quiet_desk.link()


def test_a_link_opens_once(desk: Desk) -> None:
    secret = desk.link()
    assert desk.ask(OPEN + secret).status_code == 303
    again = desk.ask(OPEN + secret)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_of_many_who_come_with_one_link_one_gets_in(quiet_desk: Desk) -> None:
    secret, now = quiet_desk.link(), timezone.now()
    got = 0
    for _ in range(5):
        try:
            ports.redeem_link(secret, quiet_desk.workload.pk, "lab", now)
            got += 1
        except ports.NoVisit:
            pass
    assert got == 1


def test_a_link_is_for_its_port_and_its_minute(quiet_desk: Desk) -> None:
    secret, now = quiet_desk.link(), timezone.now()
    with pytest.raises(ports.NoVisit):
        ports.redeem_link(secret, quiet_desk.workload.pk, "other", now)
    with pytest.raises(ports.NoVisit):
        ports.redeem_link(secret, quiet_desk.workload.pk, "lab", now + timedelta(seconds=61))
    assert ports.redeem_link(secret, quiet_desk.workload.pk, "lab", now)


def test_neither_the_link_nor_the_cookie_can_be_read_from_the_database(desk: Desk) -> None:
    secret = desk.link()
    cookie = desk.ask(OPEN + secret).cookies["berth_port"]
    row = str(PortLink.objects.values().get())
    assert secret not in row
    assert cookie not in row


def test_a_cookie_counts_for_its_own_port_alone(desk: Desk) -> None:
    cookie = desk.visit()
    other = desk.origins.of(desk.workload.pk, "other").removeprefix("http://")
    assert desk.ask("/", cookie=cookie, headers={"Host": other}).status_code == 403


def test_a_visit_ends_with_the_right_to_it(quiet_desk: Desk) -> None:
    cookie = quiet_desk.enter()
    now = timezone.now()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    Membership.objects.filter(user=quiet_desk.cast.dave.user).delete()
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_visit_ends_with_the_token_that_asked_for_it(quiet_desk: Desk) -> None:
    token, _ = tokens.issue(acting=quiet_desk.cast.dave, name="t", scopes=["write"], expires_at=None)
    acting = replace(quiet_desk.cast.dave, token_id=token.pk)
    cookie, now = quiet_desk.enter(acting), timezone.now()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    tokens.revoke(acting=quiet_desk.cast.dave, token=token)
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_visit_ends_with_the_session_that_asked_for_it(quiet_desk: Desk) -> None:
    key = cookie_of(quiet_desk.cast.dave.user).partition("=")[2]
    cookie, now = quiet_desk.enter(replace(quiet_desk.cast.dave, session_key=key)), timezone.now()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    Session.objects.filter(session_key=key).delete()
    with pytest.raises(ports.NoVisit):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


@pytest.mark.parametrize("change", ["password", "account", "time", "signed out"])
def test_a_visit_ends_with(quiet_desk: Desk, change: str) -> None:
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


def test_a_visit_by_a_token_does_not_outlive_the_token(quiet_desk: Desk) -> None:
    soon = timezone.now() + timedelta(minutes=5)
    quiet_desk.link(Acting.person(quiet_desk.cast.dave.user, until=soon))  # type: ignore[arg-type]
    assert PortLink.objects.get().visit_until == soon


def test_the_next_run_is_visited_by_the_same_cookie_and_nothing_answers_between(quiet_desk: Desk) -> None:
    cookie, now = quiet_desk.enter(), timezone.now()
    quiet_desk.workload.run = 2
    quiet_desk.workload.save()
    with pytest.raises(ports.PortClosed):
        ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)
    quiet_desk.pod.run = 2
    quiet_desk.pod.save()
    assert ports.resolve_visit(cookie, quiet_desk.workload.pk, "lab", now)


def test_links_that_nobody_uses_do_not_pile_up(quiet_desk: Desk) -> None:
    for _ in range(20):
        quiet_desk.link()
    with pytest.raises(Conflict, match="unused links"):
        quiet_desk.link()
    assert quiet_desk.link(at=timezone.now() + timedelta(seconds=61))
    assert PortLink.objects.count() == 1
    assert ports.delete_links(before=timezone.now() + timedelta(days=1)) == 1
