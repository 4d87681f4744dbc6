"""Settings for middleware, templates, sessions, REST, and limits on requests and connections."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from berth.home import CHECKOUT, PACKAGE, is_checkout
from berth.server.settings.base import BERTH_HOME, DEBUG, env

ROOT_URLCONF = "berth.server.urls"
ASGI_APPLICATION = "berth.server.asgi.application"
# PostgreSQL notifications (berth.db.loops.wake) carry changes between processes, so this layer can be local.
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

MIDDLEWARE = [
    "berth.server.api.middleware.RequestIds",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "berth.server.web.middleware.ActingUser",
    "berth.server.web.middleware.ContentSecurityPolicy",
    "berth.server.web.middleware.ServiceErrorPages",
    "berth.server.web.middleware.AdminTimeZone",
    "projects.connections.streams.StreamWatchMiddleware",
]

# In a wheel, the templates are inside the package.
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [CHECKOUT / "templates" if is_checkout() else PACKAGE / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# WhiteNoise serves static files directly from the Django apps, so `collectstatic` is not needed.
STATIC_URL = "/static/"
STATIC_ROOT = env.str("BERTH_STATIC_ROOT", default=None)
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

LOGIN_URL = "/login"
CSRF_FAILURE_VIEW = "berth.server.web.authentication.rejections.csrf_failure"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]

SESSION_COOKIE_AGE = 14 * 24 * 3600
SESSION_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

if HTTPS := env.bool("BERTH_HTTPS", default=False):
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    # Browsers accept `__Host-` cookies only from this host, so no sibling host can set them.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    SECURE_SSL_REDIRECT = True
    # Health probes, and pods on this machine that download their code, connect without TLS.
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$", r"^api/v1/pods/[0-9a-f-]+/code$"]
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Each port of an interactive workload has its own host: https://*.apps.example.org.
BERTH_APPS_ORIGIN = env.str("BERTH_APPS_ORIGIN", default="")

# Installation name on the sign-in page, and a contact for users who need help.
BERTH_NAME = env.str("BERTH_NAME", default="")
BERTH_CONTACT = env.str("BERTH_CONTACT", default="")

# Currency of the pools' prices. Pages show it beside costs.
BERTH_CURRENCY = env.str("BERTH_CURRENCY", default="USD")

# The built documentation site, served under /docs.
BERTH_DOCS = Path(
    env.str("BERTH_DOCS", default="") or (CHECKOUT / "site" if is_checkout() else BERTH_HOME / "docs")
)

# Connection limits


def networks(variable: str) -> list[str]:
    """Return the addresses and networks listed in an environment variable.

    Raises ImproperlyConfigured if one of them is invalid.
    """
    values = [value.strip() for value in env.list(variable, default=[])]
    try:
        return [str(ip_network(value, strict=False)) for value in values if value]
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{variable}: {error}. Separate addresses and networks with commas, "
            "for example 127.0.0.1,10.0.0.0/24."
        ) from None


# X-Forwarded-For is trusted only from these proxies, which are exempt from the per-address limit.
BERTH_TRUSTED_PROXIES = networks("BERTH_TRUSTED_PROXIES")
# Connection limits of each web process.
BERTH_CONNECTIONS_PER_ADDRESS = env.int("BERTH_CONNECTIONS_PER_ADDRESS", default=1000)
BERTH_CONNECTIONS_PER_USER = env.int("BERTH_CONNECTIONS_PER_USER", default=200)

# REST

# Limits per minute: requests by user, failed sign-ins by address and username, invalid tokens by address.
BERTH_RATE_LIMITS = {
    "read": env.int("BERTH_RATE_READ", default=6000),
    "write": env.int("BERTH_RATE_WRITE", default=3000),
    "bad_token": env.int("BERTH_RATE_BAD_TOKEN", default=60),
    "login": env.int("BERTH_RATE_LOGIN", default=20),
}
# Maximum size of a call with its arguments, or of a result.
BERTH_CALL_MIB = env.int("BERTH_CALL_MIB", default=32)
# Maximum total size of a session's calls and results.
BERTH_SESSION_MIB = env.int("BERTH_SESSION_MIB", default=512)

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "projects.api.people.authentication.BearerTokenAuthentication",
        "projects.api.people.authentication.BrowserSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": [
        "berth.server.api.parsers.JSONParser",
        "berth.server.api.parsers.MergePatchParser",
        "berth.server.api.parsers.YAMLParser",
        "berth.server.api.parsers.LegacyYAMLParser",
    ],
    "EXCEPTION_HANDLER": "berth.server.api.problems.exception_handler",
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Berth",
    "DESCRIPTION": "Shares GPUs between departments and projects by quota and fair share.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    # Prevent the page from calling the public OpenAPI validator.
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None, "persistAuthorization": False},
    "POSTPROCESSING_HOOKS": [],
    "AUTHENTICATION_WHITELIST": [],
    "APPEND_COMPONENTS": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "SECURITY": [{"token": []}],
    "DISABLE_ERRORS_AND_WARNINGS": False,
}
