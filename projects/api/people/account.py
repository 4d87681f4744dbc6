"""REST endpoints for the user's own account: sign-in, password and tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Literal

from django.contrib.auth import authenticate, update_session_auth_hash
from django.contrib.auth.models import User
from django.utils import timezone
from pydantic import Field
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Forbidden, Unauthenticated
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.quantities import Moment
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import check_names
from berth.server.api import rate_limits
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, map_rows, page
from berth.server.api.rate_limits import password_attempt
from berth.server.api.requests import Body, ListQuery, Word, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.access import is_platform_admin
from projects.actor import SCOPES, Actor
from projects.known_names import unknown_user_problem
from projects.models import ApiToken, Membership
from projects.services.people import passwords, tokens

LOGIN_TOKEN_LIFETIME = timedelta(days=30)
Scope = Literal["read", "write", "admin"]
Scopes = Annotated[tuple[Scope, ...], Field(min_length=1, max_length=3, strict=False)]


class CredentialsBody(Body):
    username: Text
    password: Text


class LoginResponse(ResponseModel):
    token: str
    expires_at: datetime


class RoleResponse(ResponseModel):
    role: str
    department: str | None
    project: str | None


class IdentityResponse(ResponseModel):
    username: str
    platform_admin: bool
    roles: list[RoleResponse]
    scopes: list[str]


class TokensQuery(ListQuery):
    user: Word | None = Field(default=None, description="Platform admins can list other users' tokens.")
    everyone: bool = Field(default=False, description="List the tokens of all users, as a platform admin.")


class TokenResponse(ResponseModel):
    id: int
    user: str
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    interactive: bool = Field(
        description="Created by sign-in, and therefore revoked when the password changes."
    )


class NewTokenResponse(TokenResponse):
    token: str | None = Field(description="The secret, returned only once; null if the request is repeated.")


class NewToken(Body):
    name: Text
    scopes: Scopes = ("read", "write", "admin")
    expires_at: Moment | None = None


class PasswordChangeBody(Body):
    current_password: Text
    new_password: Text
    revoke_tokens: bool = Field(
        default=False, description="Also revoke tokens that were not created by sign-in."
    )


class PasswordChangeResponse(ResponseModel):
    revoked_tokens: int
    token: str | None = Field(
        description="Replacement for this request's token if sign-in created it; otherwise null."
    )
    expires_at: datetime | None = Field(description="Expiry of the replacement token.")


class PasswordView(ApiView):
    """Base view for endpoints that check a password.

    Failures are rate-limited per client address and per account.
    """

    @contextmanager
    def password_attempt(
        self, request: Request, name: str, wrong_password_error: type[Exception]
    ) -> Iterator[None]:
        """Run the block as one rate-limited password attempt. Raises RateLimited."""
        try:
            with password_attempt(request._request, name, wrong_password_error) as self.budget:
                yield
        except rate_limits.LimitExceeded as rejection:
            self.budget = rejection.budget
            raise


class Login(PasswordView):
    authentication_classes = []
    permission_classes = [AllowAny]

    def check_throttles(self, request: Request) -> None:
        """Do not apply the per-user limit, because `password_attempt` counts attempts by username."""

    @operation("Sign in with a password for a token", body=CredentialsBody, response=LoginResponse)
    @idempotent
    def post(self, request: Request) -> Response:
        body = parse_body(request, CredentialsBody)
        with self.password_attempt(request, body.username, Unauthenticated):
            user = authenticate(request._request, username=body.username, password=body.password)
            if not isinstance(user, User):
                raise Unauthenticated("Wrong username or password.")
        rate_limits.spend("write", f"user {user.pk}")
        actor = Actor.for_user(user, request_id=getattr(request, "request_id", ""))
        token, secret = tokens.issue(
            actor=actor, name=tokens.sign_in_token_name(), scopes=SCOPES,
            expires_at=timezone.now() + LOGIN_TOKEN_LIFETIME, interactive=True,
        )  # fmt: skip
        assert token.expires_at is not None
        return Response(LoginResponse(token=secret, expires_at=token.expires_at))


class Password(PasswordView):
    @operation("Change your password", body=PasswordChangeBody, response=PasswordChangeResponse)
    @idempotent
    def post(self, request: Request) -> Response:
        """Change the password, revoke sign-in tokens (or all tokens, if requested) and end other browser
        sessions.
        """
        body = parse_body(request, PasswordChangeBody)
        with self.password_attempt(request, request.user.get_username(), passwords.WrongPassword):
            changed = passwords.change(
                actor=self.actor, current=body.current_password, new=body.new_password,
                revoke_tokens=body.revoke_tokens,
            )  # fmt: skip
        if self.actor.token_id is None:
            update_session_auth_hash(request._request, changed.user)
        return Response(
            PasswordChangeResponse(
                revoked_tokens=changed.revoked,
                token=changed.secret or None,
                expires_at=changed.token.expires_at if changed.token else None,
            )
        )


class Whoami(ApiView):
    @operation("Get your username, roles and scopes", response=IdentityResponse)
    def get(self, request: Request) -> Response:
        rows = (
            Membership.objects.filter(user=self.actor.user)
            .select_related("department", "project")
            .order_by("id")
        )
        return Response(
            IdentityResponse(
                username=request.user.get_username(),
                platform_admin=is_platform_admin(self.actor),
                roles=[_serialize_role(row) for row in rows],
                scopes=[scope for scope in SCOPES if scope in self.actor.scopes],
            )
        )


class Tokens(ApiView):
    @operation(
        "List your tokens, or those of other users as a platform admin", query=TokensQuery, page=TokenResponse
    )
    def get(self, request: Request) -> Response:
        query = parse_query(request, TokensQuery)
        check_names(unknown_user_problem(self.actor, query.user))
        rows = selectors.all_tokens(self.actor)
        if query.everyone or query.user not in (None, request.user.get_username()):
            self._require_platform_admin()
        if not query.everyone:
            rows = rows.filter(user__username=query.user or request.user.get_username())
        elif query.user is not None:
            rows = rows.filter(user__username=query.user)
        return Response(page(rows, query, NEWEST, map_rows(_serialize_token)))

    @operation("Create a token", body=NewToken, response=NewTokenResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        body = parse_body(request, NewToken)
        token, secret = tokens.issue(
            actor=self.actor, name=body.name, scopes=body.scopes, expires_at=body.expires_at
        )
        response = NewTokenResponse(**_serialize_token(token).model_dump(), token=secret)
        return created_response(response, f"/api/v1/tokens/{token.pk}")

    def _require_platform_admin(self) -> None:
        if not is_platform_admin(self.actor):
            raise Forbidden("Only platform admins can list the tokens of other users. Ask a platform admin.")


class TokenDetail(ApiView):
    @operation("Get a token", response=TokenResponse)
    def get(self, request: Request, token_id: int) -> Response:
        return Response(_serialize_token(self._find_token(token_id)))

    @operation("Revoke a token", status=204)
    def delete(self, request: Request, token_id: int) -> Response:
        """Revoke one of your tokens. Platform admins can revoke any user's token."""
        tokens.revoke(actor=self.actor, token=self._find_token(token_id))
        return no_content()

    def _find_token(self, token_id: int) -> ApiToken:
        token = selectors.all_tokens(self.actor).filter(pk=token_id).first()
        if token is None:
            raise not_found_error(ObjectKind.TOKEN, object_id=token_id)
        return token


def _serialize_token(row: ApiToken) -> TokenResponse:
    return TokenResponse.from_row(row, user=row.user.get_username())


def _serialize_role(row: Membership) -> RoleResponse:
    return RoleResponse(
        role=row.role,
        department=row.department.name if row.department else None,
        project=row.project.name if row.project else None,
    )
