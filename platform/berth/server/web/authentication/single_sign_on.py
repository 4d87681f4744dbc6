"""Sign-in through OpenID Connect (code flow with PKCE, by Authlib).

The libraries take 6 MiB of memory and are imported at the first sign-in.
"""

from functools import lru_cache
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from berth.core.errors import BerthError, NotFound, RateLimited
from berth.server.api.rate_limits import client_address, spend
from projects.services.people.identities import user_for_claims

log = structlog.get_logger(__name__)
NEXT = "berth_next"
UNREACHABLE = "The single sign-on provider cannot be reached. Try again in a moment."
REJECTED = "The single sign-on provider rejected the sign-in: {reason}"
MISMATCH = "The provider's response does not match the sign-in request. Sign in again."
TIMEOUT_SECONDS = 10


@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider, and remember the page that the user requested."""
    from authlib.integrations.base_client.errors import OAuthError
    from requests import RequestException

    next_url = request.GET.get("next", "")
    is_safe = url_has_allowed_host_and_scheme(
        next_url, {request.get_host()}, require_https=request.is_secure()
    )
    request.session[NEXT] = next_url if is_safe else settings.LOGIN_REDIRECT_URL
    try:
        spend("login", f"single sign-on of {client_address(request)}")
        response: HttpResponse = provider().authorize_redirect(request, _redirect_url(request))
    except RateLimited as error:
        return _render_rejection(request, error.detail, 429)
    except (RequestException, OAuthError, ValueError, KeyError) as error:
        log.warning("single sign-on could not start", error=f"{type(error).__name__}: {error}"[:300])
        return _render_rejection(request, UNREACHABLE, 502)
    return response


@never_cache
@require_GET
def end(request: HttpRequest) -> HttpResponse:
    """Handle the redirect from the provider: exchange the code for an ID token, and validate the token."""
    from authlib.integrations.base_client.errors import OAuthError
    from joserfc.errors import JoseError
    from requests import RequestException

    next_url = request.session.pop(NEXT, settings.LOGIN_REDIRECT_URL)
    try:
        token = provider().authorize_access_token(request)
        claims: Any = token.get("userinfo")
        if not claims or not claims.get("sub"):
            return _render_rejection(request, MISMATCH, 403)
        user = user_for_claims(
            claims,
            issuer=settings.BERTH_OIDC_ISSUER,
            name_claim=settings.BERTH_OIDC_USERNAME,
            may_create=settings.BERTH_OIDC_CREATE,
        )
    except RequestException as error:
        log.warning("single sign-on could not be completed", error=f"{type(error).__name__}: {error}"[:300])
        return _render_rejection(request, UNREACHABLE, 502)
    except OAuthError as error:
        reason = str(error.description or error.error or "no reason was given")[:200]
        return _render_rejection(request, REJECTED.format(reason=reason), 403)
    except (JoseError, ValueError, KeyError) as error:
        log.warning("an ID token was rejected", error=f"{type(error).__name__}: {error}"[:300])
        return _render_rejection(request, MISMATCH, 403)
    except BerthError as error:
        return _render_rejection(request, error.detail, error.status)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect(next_url)


def is_configured() -> bool:
    return bool(settings.BERTH_OIDC_ISSUER and settings.BERTH_OIDC_CLIENT_ID)


def provider() -> Any:
    """Return the OpenID Connect provider. Raises NotFound if single sign-on is not configured."""
    if not is_configured():
        raise NotFound("Single sign-on is not configured. Sign in with your password.")
    return _register(
        settings.BERTH_OIDC_ISSUER,
        settings.BERTH_OIDC_CLIENT_ID,
        settings.BERTH_OIDC_CLIENT_SECRET,
        settings.BERTH_OIDC_SCOPES,
    )


@lru_cache(maxsize=4)
def _register(issuer: str, client_id: str, secret: str, scopes: str) -> Any:
    """Register the provider.

    Its metadata is fetched only once, but its keys are fetched again after the provider has replaced them.
    """
    from authlib.integrations.django_client import OAuth

    return OAuth().register(
        "berth",
        client_id=client_id,
        client_secret=secret,
        server_metadata_url=f"{issuer}/.well-known/openid-configuration",
        client_kwargs={"scope": scopes, "code_challenge_method": "S256", "default_timeout": TIMEOUT_SECONDS},
    )


def _redirect_url(request: HttpRequest) -> str:
    path = reverse("sso-end")
    public: str = settings.BERTH_PUBLIC_URL
    return f"{public}{path}" if public else request.build_absolute_uri(path)


def _render_rejection(request: HttpRequest, reason: str, status: int) -> HttpResponse:
    return render(request, "web/sso_rejected.html", {"reason": reason}, status=status)
