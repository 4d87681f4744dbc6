"""A token cannot issue a token with more rights or a longer life."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from berth.core.errors import Forbidden, Invalid
from projects.acting import Acting
from projects.services.people import tokens
from tests.cast import Cast


def by_token(cast: Cast, until: datetime | None, *scopes: str) -> Acting:
    assert cast.dave.user is not None
    return Acting.person(cast.dave.user, frozenset(scopes or ("read", "write")), until=until)


def test_no_token_outlives_the_one_it_was_made_with(cast: Cast) -> None:
    until = timezone.now() + timedelta(days=2)
    with pytest.raises(Invalid) as refused:
        tokens.issue(
            acting=by_token(cast, until), name="long", scopes=["read"], expires_at=until + timedelta(days=1)
        )
    found = refused.value.problems[0]
    assert (found.path, found.message) == ("expires_at", "is after the expiry of the token in use")
    assert f"{until:%Y-%m-%d}" in found.allowed
    shorter, _ = tokens.issue(
        acting=by_token(cast, until), name="short", scopes=["read"], expires_at=until - timedelta(days=1)
    )
    assert shorter.expires_at < until


def test_without_an_end_of_its_own_it_ends_with_the_one_it_was_made_with(cast: Cast) -> None:
    until = timezone.now() + timedelta(days=2)
    token, _ = tokens.issue(acting=by_token(cast, until), name="same", scopes=["read"], expires_at=None)
    assert token.expires_at == until


def test_no_token_may_more_than_the_one_it_was_made_with(cast: Cast) -> None:
    with pytest.raises(Forbidden):
        tokens.issue(acting=by_token(cast, None, "write"), name="wide", scopes=["read"], expires_at=None)


def test_who_signed_in_may_make_one_without_an_end(cast: Cast) -> None:
    token, _ = tokens.issue(acting=cast.dave, name="ever", scopes=["read"], expires_at=None)
    assert token.expires_at is None
