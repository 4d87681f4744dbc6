"""OpenID Connect provider; disabled without an issuer."""

from berth.server.settings.base import env

BERTH_OIDC_ISSUER = env.str("BERTH_OIDC_ISSUER", default="").rstrip("/")
BERTH_OIDC_CLIENT_ID = env.str("BERTH_OIDC_CLIENT_ID", default="")
BERTH_OIDC_CLIENT_SECRET = env.str("BERTH_OIDC_CLIENT_SECRET", default="")
BERTH_OIDC_SCOPES = env.str("BERTH_OIDC_SCOPES", default="openid profile email")
BERTH_OIDC_NAME = env.str("BERTH_OIDC_NAME", default="single sign-on")
BERTH_OIDC_USERNAME = env.str("BERTH_OIDC_USERNAME", default="preferred_username")
# Whether somebody whom the provider knows and Berth does not is made known; a role they have to be given.
BERTH_OIDC_CREATE = env.bool("BERTH_OIDC_CREATE", default=True)
