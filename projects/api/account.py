"""REST endpoints of one's own account: sign-in, password, tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.contrib.auth import authenticate, update_session_auth_hash
from django.contrib.auth.models import User
from django.utils import timezone
from pydantic import Field
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound, Unauthenticated
from berth.core.spec.quantities import Moment
from berth.core.spec.texts import Text
from berth.server.api import rate_limits
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, page
from berth.server.api.rate_limits import password_attempt
from berth.server.api.requests import Body, ListQuery, no_query, parse_body, parse_query
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.access import is_platform_admin
from projects.acting import SCOPES, Acting
from projects.models import ApiToken, Membership
from projects.services.people import passwords, tokens

LOGIN_LASTS = timedelta(days=30)
Scope = Literal["read", "write", "admin"]
Scopes = Annotated[tuple[Scope, ...], Field(min_length=1, max_length=3, strict=False)]


class Credentials(Body):
    username: Text
    password: Text


class LoginAnswer(Answer):
    token: str
    expires_at: datetime


class RoleAnswer(Answer):
    role: str
    department: str | None
    project: str | None


class WhoAnswer(Answer):
    username: str
    platform_admin: bool
    roles: list[RoleAnswer]
    scopes: list[str]


class TokenAnswer(Answer):
    id: int
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    interactive: bool = Field(description="Created by sign-in: it ends when the password changes.")


class NewTokenAnswer(TokenAnswer):
    token: str | None = Field(description="The secret, shown this once; null in a repeated answer.")


class NewToken(Body):
    name: Text
    scopes: Scopes = ("read", "write", "admin")
    expires_at: Moment | None = None


class ChangePassword(Body):
    current_password: Text
    new_password: Text
    revoke_tokens: bool = Field(
        default=False, description="Also revoke tokens that were not created by sign-in."
    )


class PasswordAnswer(Answer):
    revoked_tokens: int
    token: str | None = Field(
        description="Replaces the token of this request if that one was created by sign-in; else null."
    )
    expires_at: datetime | None = Field(description="When that token ends.")


class PasswordView(ApiView):
    """A view that checks a password: failures are limited per address and per account."""

    @contextmanager
    def password_attempt(self, request: Request, name: str, wrong: type[Exception]) -> Iterator[None]:
        """Run the block as one password attempt. Raises RateLimited."""
        try:
            with password_attempt(request._request, name, wrong) as self.budget:
                yield
        except rate_limits.LimitExceeded as refusal:
            self.budget = refusal.budget
            raise


class Login(PasswordView):
    authentication_classes = []
    permission_classes = [AllowAny]

    def check_throttles(self, request: Request) -> None:
        """Skip the limit per user: the attempt is counted by name."""

    @operation("Sign in with a password for a token", body=Credentials, answer=LoginAnswer)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        body = parse_body(request, Credentials)
        with self.password_attempt(request, body.username, Unauthenticated):
            user = authenticate(request._request, username=body.username, password=body.password)
            if not isinstance(user, User):
                raise Unauthenticated("Wrong user name or password.")
        rate_limits.spend("write", f"user {user.pk}")
        acting = Acting.person(user, request_id=getattr(request, "request_id", ""))
        token, secret = tokens.issue(
            acting=acting, name=tokens.sign_in_name(), scopes=SCOPES,
            expires_at=timezone.now() + LOGIN_LASTS, interactive=True,
        )  # fmt: skip
        assert token.expires_at is not None
        return Response(LoginAnswer(token=secret, expires_at=token.expires_at))


class Password(PasswordView):
    @operation("Change your password", body=ChangePassword, answer=PasswordAnswer)
    @idempotent
    def post(self, request: Request) -> Response:
        """Change the password, which revokes tokens created by sign-in and ends other browser sessions."""
        no_query(request)
        body = parse_body(request, ChangePassword)
        with self.password_attempt(request, request.user.get_username(), passwords.WrongPassword):
            changed = passwords.change(
                acting=self.acting, current=body.current_password, new=body.new_password,
                revoke_tokens=body.revoke_tokens,
            )  # fmt: skip
        if self.acting.token_id is None:
            update_session_auth_hash(request._request, changed.user)
        return Response(
            PasswordAnswer(
                revoked_tokens=changed.revoked,
                token=changed.secret or None,
                expires_at=changed.token.expires_at if changed.token else None,
            )
        )


class Whoami(ApiView):
    @operation("Get your user name, roles and scopes", answer=WhoAnswer)
    def get(self, request: Request) -> Response:
        no_query(request)
        rows = (
            Membership.objects.filter(user=self.acting.user)
            .select_related("department", "project")
            .order_by("id")
        )
        return Response(
            WhoAnswer(
                username=request.user.get_username(),
                platform_admin=is_platform_admin(self.acting),
                roles=[_role(row) for row in rows],
                scopes=[scope for scope in SCOPES if scope in self.acting.scopes],
            )
        )


class Tokens(ApiView):
    @operation("List your tokens", query=ListQuery, page=TokenAnswer)
    def get(self, request: Request) -> Response:
        rows = selectors.tokens(self.acting)
        return Response(
            page(rows, parse_query(request, ListQuery), NEWEST, lambda rows: [_token(row) for row in rows])
        )

    @operation("Create a token", body=NewToken, answer=NewTokenAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        body = parse_body(request, NewToken)
        token, secret = tokens.issue(
            acting=self.acting, name=body.name, scopes=body.scopes, expires_at=body.expires_at
        )
        answer = NewTokenAnswer(**_token(token).model_dump(), token=secret)
        return created(answer, f"/api/v1/tokens/{token.pk}")


class OneToken(ApiView):
    @operation("Get one of your tokens", answer=TokenAnswer)
    def get(self, request: Request, token_id: int) -> Response:
        no_query(request)
        return Response(_token(self._token_by_id(token_id)))

    @operation("Revoke one of your tokens", status=204)
    def delete(self, request: Request, token_id: int) -> Response:
        no_query(request)
        tokens.revoke(acting=self.acting, token=self._token_by_id(token_id))
        return no_content()

    def _token_by_id(self, token_id: int) -> ApiToken:
        token = selectors.tokens(self.acting).filter(pk=token_id).first()
        if token is None:
            raise NotFound("No token with this id.")
        return token


def _role(row: Membership) -> RoleAnswer:
    return RoleAnswer(
        role=row.role,
        department=row.department.name if row.department else None,
        project=row.project.name if row.project else None,
    )


def _token(row: ApiToken) -> TokenAnswer:
    values: dict[str, Any] = {name: getattr(row, name) for name in TokenAnswer.model_fields}
    return TokenAnswer(**values)
