"""Tests for port links: permissions, single use, expiry, and the duration of port sessions."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from berth.core.errors import Conflict, Forbidden, NotFound
from projects.actor import Actor
from projects.models import Audit, Membership, Phase, PortLink
from projects.port_proxy.proxy import OPEN_PREFIX
from projects.services.people import tokens
from projects.services.workloads import ports
from tests.port_proxy.conftest import PortSetup
from tests.support.session_cookies import session_cookie


def test_member_with_write_access_gets_an_audited_link(port_setup: PortSetup) -> None:
    for actor in (
        port_setup.cast.dave,
        port_setup.cast.carol,
        port_setup.cast.bob,
        port_setup.cast.alice,
    ):
        assert port_setup.ask("/", cookie=port_setup.open_session(actor)).status_code == 200
    assert Audit.objects.filter(action="open_port", after={"port": "lab"}).count() == 4


def test_viewer_cannot_create_a_link_and_non_members_do_not_see_the_workload(
    offline_setup: PortSetup,
) -> None:
    with pytest.raises(Forbidden):
        offline_setup.link(offline_setup.cast.erin)
    with pytest.raises(NotFound):
        offline_setup.link(offline_setup.cast.grace)
    with pytest.raises(Forbidden, match="write"):
        offline_setup.link(Actor.for_user(offline_setup.cast.dave.user, scopes=frozenset({"read"})))


def test_undeclared_port_cannot_be_opened(offline_setup: PortSetup) -> None:
    with pytest.raises(NotFound, match="Use one of: lab, other"):
        offline_setup.link(port="5432")


def test_port_link_requires_a_running_workload(offline_setup: PortSetup) -> None:
    offline_setup.workload.phase = Phase.SUSPENDED
    with pytest.raises(Conflict, match="is suspended"):
        offline_setup.link()


def test_port_link_can_be_used_only_once(port_setup: PortSetup) -> None:
    secret = port_setup.link()
    assert port_setup.ask(OPEN_PREFIX + secret).status_code == 303
    again = port_setup.ask(OPEN_PREFIX + secret)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_repeated_uses_of_a_port_link_open_only_one_port_session(offline_setup: PortSetup) -> None:
    secret, now = offline_setup.link(), timezone.now()
    got = 0
    for _ in range(5):
        try:
            ports.redeem_link(secret, offline_setup.workload.pk, "lab", now)
            got += 1
        except ports.InvalidPortSession:
            pass
    assert got == 1


def test_port_link_is_valid_only_for_its_port_and_for_one_minute(offline_setup: PortSetup) -> None:
    secret, now = offline_setup.link(), timezone.now()
    with pytest.raises(ports.InvalidPortSession):
        ports.redeem_link(secret, offline_setup.workload.pk, "other", now)
    with pytest.raises(ports.InvalidPortSession):
        ports.redeem_link(secret, offline_setup.workload.pk, "lab", now + timedelta(seconds=61))
    assert ports.redeem_link(secret, offline_setup.workload.pk, "lab", now)


def test_port_links_and_cookies_are_not_stored_in_plain_text(port_setup: PortSetup) -> None:
    secret = port_setup.link()
    cookie = port_setup.ask(OPEN_PREFIX + secret).cookies["berth_port"]
    row = str(PortLink.objects.values().get())
    assert secret not in row
    assert cookie not in row


def test_port_session_cookie_is_valid_only_for_its_own_port(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    other = port_setup.origins.origin_for(port_setup.workload.pk, "other").removeprefix("http://")
    assert port_setup.ask("/", cookie=cookie, headers={"Host": other}).status_code == 403


def test_port_session_ends_when_access_is_revoked(offline_setup: PortSetup) -> None:
    cookie = offline_setup.enter()
    now = timezone.now()
    assert ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)
    Membership.objects.filter(user=offline_setup.cast.dave.user).delete()
    with pytest.raises(ports.InvalidPortSession):
        ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)


def test_port_session_ends_when_the_token_that_requested_it_is_revoked(offline_setup: PortSetup) -> None:
    token, _ = tokens.issue(actor=offline_setup.cast.dave, name="t", scopes=["write"], expires_at=None)
    actor = replace(offline_setup.cast.dave, token_id=token.pk)
    cookie, now = offline_setup.enter(actor), timezone.now()
    assert ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)
    tokens.revoke(actor=offline_setup.cast.dave, token=token)
    with pytest.raises(ports.InvalidPortSession):
        ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)


def test_port_session_ends_when_the_browser_session_that_requested_it_ends(offline_setup: PortSetup) -> None:
    key = session_cookie(offline_setup.cast.dave.user).partition("=")[2]
    cookie, now = offline_setup.enter(replace(offline_setup.cast.dave, session_key=key)), timezone.now()
    assert ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)
    Session.objects.filter(session_key=key).delete()
    with pytest.raises(ports.InvalidPortSession):
        ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)


@pytest.mark.every_case
@pytest.mark.parametrize("change", ["password", "account", "time", "signed out"])
def test_port_session_ends_after_password_change_deactivation_expiry_or_sign_out(
    offline_setup: PortSetup, change: str
) -> None:
    cookie, now, user = offline_setup.enter(), timezone.now(), offline_setup.cast.dave.user
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
    with pytest.raises(ports.InvalidPortSession):
        ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)


def test_port_session_does_not_outlive_its_token(offline_setup: PortSetup) -> None:
    soon = timezone.now() + timedelta(minutes=5)
    offline_setup.link(Actor.for_user(offline_setup.cast.dave.user, token_expires_at=soon))
    assert PortLink.objects.get().session_until == soon


def test_port_session_cookie_works_for_the_next_run_but_not_between_runs(offline_setup: PortSetup) -> None:
    cookie, now = offline_setup.enter(), timezone.now()
    offline_setup.workload.run = 2
    offline_setup.workload.save()
    with pytest.raises(ports.PortClosed):
        ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)
    offline_setup.pod.run = 2
    offline_setup.pod.save()
    assert ports.resolve_port_session(cookie, offline_setup.workload.pk, "lab", now)


def test_unused_links_are_deleted(offline_setup: PortSetup) -> None:
    for _ in range(20):
        offline_setup.link()
    with pytest.raises(Conflict, match="unused links"):
        offline_setup.link()
    assert offline_setup.link(at=timezone.now() + timedelta(seconds=61))
    assert PortLink.objects.count() == 1
    assert ports.delete_links(before=timezone.now() + timedelta(days=1)) == 1
