"""Settings for metrics, notifications, services, single sign-on, utilization and retention."""

import shlex
from ipaddress import ip_network

from django.core.exceptions import ImproperlyConfigured

from berth.server.settings.base import BERTH_HOME, env, persistent_key

# Prometheus must send this token or scrape from one of the networks below.
BERTH_METRICS_TOKEN = env.str("BERTH_METRICS_TOKEN", default="") or persistent_key(
    BERTH_HOME / "metrics_token"
)
try:
    BERTH_METRICS_NETWORKS = [ip_network(text) for text in env.list("BERTH_METRICS_NETWORKS", default=[])]
except ValueError as error:
    raise ImproperlyConfigured(
        f"BERTH_METRICS_NETWORKS: {error}. Separate networks with commas, for example 10.0.0.5/32."
    ) from None

# Notifications by email and webhook
BERTH_SENDS_MAIL = bool(env.str("BERTH_EMAIL_URL", default=""))
if BERTH_SENDS_MAIL:
    vars().update(env.email_url("BERTH_EMAIL_URL"))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("BERTH_EMAIL_FROM", default="berth@localhost")
BERTH_WEBHOOK_SECRET = env.str("BERTH_WEBHOOK_SECRET", default="") or persistent_key(
    BERTH_HOME / "webhook_secret"
)
# Non-public networks that webhooks may reach, such as 10.0.0.0/8 or 127.0.0.1/32.
BERTH_NOTIFY_NETWORKS = env.list("BERTH_NOTIFY_NETWORKS", default=[])

# Inference services
# Non-public networks in which Berth may call inference engines and routers, such as 10.20.0.0/16.
# 127.0.0.0/8 allows this machine, except for Berth's own ports.
BERTH_SERVICE_NETWORKS = env.list("BERTH_SERVICE_NETWORKS", default=[])
BERTH_OWN_PORTS = env.list("BERTH_OWN_PORTS", cast=int, default=[])
# Each file-based router has one file in this directory. BERTH_ROUTER_RELOAD runs after each change.
BERTH_ROUTERS = BERTH_HOME / "routers"
BERTH_ROUTER_RELOAD = shlex.split(env.str("BERTH_ROUTER_RELOAD", default=""))

# Container images
# Registries that are called over HTTP instead of HTTPS, such as registry.internal:5000.
# Registries on this machine are always called over HTTP.
BERTH_INSECURE_REGISTRIES = env.list("BERTH_INSECURE_REGISTRIES", default=[])

# Code that is sent with workloads
# Store for uploaded code: a directory, or s3://BUCKET/PREFIX with an optional endpoint.
BERTH_CODE_STORE = env.str("BERTH_CODE_STORE", default=str(BERTH_HOME / "code"))
if not BERTH_CODE_STORE.startswith(("/", "s3://")):
    raise ImproperlyConfigured(
        f"BERTH_CODE_STORE is {BERTH_CODE_STORE!r}. Set it to an absolute path or to s3://BUCKET/PREFIX."
    )
BERTH_CODE_S3_ENDPOINT = env.str("BERTH_CODE_S3_ENDPOINT", default="")
BERTH_CODE_MIB = env.int("BERTH_CODE_MIB", default=256)  # maximum total file size per submission
BERTH_CODE_FILES = env.int("BERTH_CODE_FILES", default=10_000)  # maximum number of files per submission
BERTH_CODE_PROJECT_MIB = env.int("BERTH_CODE_PROJECT_MIB", default=10_240)  # maximum stored code per project
# Code that Berth fetches from Git servers
# Allowed hosts at private addresses, as HOST or HOST:PORT, for example gitlab.internal.
BERTH_GIT_HOSTS = env.list("BERTH_GIT_HOSTS", default=[])
# File with the public keys of SSH servers, in OpenSSH's known_hosts format
BERTH_GIT_KNOWN_HOSTS = env.str("BERTH_GIT_KNOWN_HOSTS", default="") or str(BERTH_HOME / "git_known_hosts")
# PEM file with the certificate authorities for HTTPS servers, used instead of the system's
BERTH_GIT_CA = env.str("BERTH_GIT_CA", default="")
BERTH_GIT_MIB = env.int("BERTH_GIT_MIB", default=1024)  # maximum size of the transfer for one commit
BERTH_GIT_SECONDS = env.int("BERTH_GIT_SECONDS", default=300)  # maximum duration of the fetch of one commit
# Maximum number of concurrent fetches. One project can run at most two of them.
BERTH_GIT_FETCHES = env.int("BERTH_GIT_FETCHES", default=4)
BERTH_OUTPUTS_MIB = env.int("BERTH_OUTPUTS_MIB", default=4096)  # maximum total size of one pod's outputs
BERTH_OUTPUTS_SECONDS = env.int("BERTH_OUTPUTS_SECONDS", default=3)  # interval between searches for outputs
# Maximum value of `keep_failed_pod` in documents. If it is 0, the key is rejected.
BERTH_KEEP_FAILED_POD_SECONDS = env.int("BERTH_KEEP_FAILED_POD_SECONDS", default=86_400)

# Single sign-on with OpenID Connect is disabled without an issuer.
BERTH_OIDC_ISSUER = env.str("BERTH_OIDC_ISSUER", default="").rstrip("/")
BERTH_OIDC_CLIENT_ID = env.str("BERTH_OIDC_CLIENT_ID", default="")
BERTH_OIDC_CLIENT_SECRET = env.str("BERTH_OIDC_CLIENT_SECRET", default="")
BERTH_OIDC_SCOPES = env.str("BERTH_OIDC_SCOPES", default="openid profile email")
BERTH_OIDC_NAME = env.str("BERTH_OIDC_NAME", default="single sign-on")
BERTH_OIDC_USERNAME = env.str("BERTH_OIDC_USERNAME", default="preferred_username")
# Whether to create an account at a user's first sign-in. The account has no role until an admin grants one.
BERTH_OIDC_CREATE = env.bool("BERTH_OIDC_CREATE", default=True)

# Utilization of allocated GPUs
# Seconds between two measurements; 0 disables sampling.
BERTH_MEASURE_SECONDS = env.int("BERTH_MEASURE_SECONDS", default=15)
BERTH_IDLE_GPU_PERCENT = env.int("BERTH_IDLE_GPU_PERCENT", default=5)  # utilization below which a GPU is idle
# Minimum idle time before a GPU is reported as idle.
BERTH_IDLE_GPU_MINUTES = env.int("BERTH_IDLE_GPU_MINUTES", default=60)

# Collection of the metrics that programs report in their logs
# Number of seconds between two collections. 0 disables the collection of metrics.
BERTH_METRICS_SECONDS = env.int("BERTH_METRICS_SECONDS", default=5)

# Retention periods in days
BERTH_KEEP_DAYS = {
    "tokens": env.int("BERTH_KEEP_TOKENS", default=30),  # days after a token expired or was revoked
    # days after the last workload that uses the code has ended
    "code": env.int("BERTH_KEEP_CODE", default=30),
    "deliveries": env.int("BERTH_KEEP_DELIVERIES", default=90),
    "cycles": env.int("BERTH_KEEP_CYCLES", default=30),
    "utilization by minute": env.int("BERTH_KEEP_UTILIZATION_MINUTES", default=1),
    "utilization by hour": env.int("BERTH_KEEP_UTILIZATION_HOURS", default=90),
    "snapshots": env.int("BERTH_KEEP_SNAPSHOTS", default=2),
}
BERTH_SNAPSHOT_MIB = env.int("BERTH_SNAPSHOT_MIB", default=256)  # maximum total size of all snapshots
