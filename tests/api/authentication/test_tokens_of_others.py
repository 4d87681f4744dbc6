"""Tests for the tokens of other users, which platform admins list and revoke through REST."""

from projects.models import ApiToken, Audit
from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.api.one_of_each import caller_for
from tests.cast import Cast


def names(answer: object) -> list[tuple[str, str]]:
    return sorted((item["user"], item["name"]) for item in answer.json()["items"])  # type: ignore[attr-defined]


def test_platform_admin_lists_the_tokens_of_one_user_or_all_users(cast: Cast) -> None:
    for name in ("dave", "grace"):
        tokens.issue(actor=getattr(cast, name), name="ci", scopes=["read"], expires_at=None)
    admin = caller_for(cast, "alice")
    assert {("dave", "ci"), ("grace", "ci")} < set(names(admin.get("tokens", everyone="true")))
    assert names(admin.get("tokens", user="dave")) == [("dave", "ci")]
    assert {user for user, _ in names(admin.get("tokens"))} == {"alice"}, "by default, only your own"
    assert "digest" not in admin.get("tokens", everyone="true").content.decode()


def test_token_without_the_admin_scope_can_revoke_only_tokens_of_its_user(cast: Cast) -> None:
    of_dave, _ = tokens.issue(actor=cast.dave, name="ci", scopes=["read"], expires_at=None)
    own, _ = tokens.issue(actor=cast.alice, name="old", scopes=["read"], expires_at=None)
    _, secret = tokens.issue(actor=cast.alice, name="script", scopes=["read", "write"], expires_at=None)
    script = Caller(secret)
    answer = script("DELETE", f"tokens/{of_dave.pk}")
    assert answer.status_code == 403 and "admin scope" in answer.json()["detail"]
    assert script("DELETE", f"tokens/{own.pk}").status_code == 204
    assert caller_for(cast, "alice")("DELETE", f"tokens/{of_dave.pk}").status_code == 204
    revoked = ApiToken.objects.exclude(revoked_at=None).values_list("name", flat=True)
    assert set(revoked) == {"ci", "old"}
    entry = Audit.objects.get(action="revoke", object_id=str(of_dave.pk))
    assert entry.before == {"name": "ci", "for": "dave"}
