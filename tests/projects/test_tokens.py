"""Tests for issuing tokens while signed in with a token."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from berth.core.errors import Forbidden, Invalid
from projects.actor import Actor
from projects.services.people import tokens
from tests.cast import Cast


def acting_by_token(cast: Cast, until: datetime | None, *scopes: str) -> Actor:
    return Actor.for_user(cast.dave.user, frozenset(scopes or ("read", "write")), token_expires_at=until)


def test_token_cannot_outlive_its_issuing_token(cast: Cast) -> None:
    until = timezone.now() + timedelta(days=2)
    with pytest.raises(Invalid) as rejected:
        tokens.issue(
            actor=acting_by_token(cast, until),
            name="long",
            scopes=["read"],
            expires_at=until + timedelta(days=1),
        )
    problem = rejected.value.problems[0]
    assert (problem.path, problem.message) == ("expires_at", "is after the expiry of the token in use")
    assert f"{until:%Y-%m-%d}" in problem.allowed
    shorter, _ = tokens.issue(
        actor=acting_by_token(cast, until),
        name="short",
        scopes=["read"],
        expires_at=until - timedelta(days=1),
    )
    assert shorter.expires_at == until - timedelta(days=1)


def test_token_without_expiry_inherits_the_expiry_of_its_issuing_token(cast: Cast) -> None:
    until = timezone.now() + timedelta(days=2)
    token, _ = tokens.issue(actor=acting_by_token(cast, until), name="same", scopes=["read"], expires_at=None)
    assert token.expires_at == until


def test_token_cannot_have_more_scopes_than_its_issuing_token(cast: Cast) -> None:
    with pytest.raises(Forbidden):
        tokens.issue(
            actor=acting_by_token(cast, None, "write"), name="wide", scopes=["read"], expires_at=None
        )


def test_signed_in_user_may_issue_a_token_without_expiry(cast: Cast) -> None:
    token, _ = tokens.issue(actor=cast.dave, name="ever", scopes=["read"], expires_at=None)
    assert token.expires_at is None
