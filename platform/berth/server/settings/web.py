"""Middleware, templates, static files, sessions and login."""

from berth.home import CHECKOUT, PACKAGE, in_checkout
from berth.server.settings.base import DEBUG, env

ROOT_URLCONF = "berth.server.urls"

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
    "berth.server.web.middleware.WhoActs",
    "berth.server.web.middleware.Policy",
    "berth.server.web.middleware.Refusals",
    "berth.server.web.middleware.AdminsZone",
    "projects.connections.streams.WatchedStreams",
]

# The wheel carries the top-level templates inside the package.
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [CHECKOUT / "templates" if in_checkout() else PACKAGE / "templates"],
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

# WhiteNoise serves files from where the applications keep them: no collect step before the first start.
STATIC_URL = "/static/"
STATIC_ROOT = env.str("BERTH_STATIC_ROOT", default=None)
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

LOGIN_URL = "/login"
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
    # Browsers take cookies of these names from this very host only: no host beside ours can set one for us.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # asked straight from a process, without TLS
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Ports of interactive workloads, each on a host of its own: https://*.apps.example.org.
BERTH_APPS_ORIGIN = env.str("BERTH_APPS_ORIGIN", default="")
