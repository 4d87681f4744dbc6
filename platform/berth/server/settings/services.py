"""Which addresses Berth may call as engines and routers, and how a router in a file is reloaded."""

import shlex

from berth.server.settings.base import BERTH_HOME, env

# Beyond public addresses, such as 10.20.0.0/16. With 127.0.0.0/8 also this machine, except Berth's own ports.
BERTH_SERVICE_NETWORKS = env.list("BERTH_SERVICE_NETWORKS", default=[])
BERTH_OWN_PORTS = env.list("BERTH_OWN_PORTS", cast=int, default=[])
# Routers that are a list in a file have one file each here; the command is run after each change.
BERTH_ROUTERS = BERTH_HOME / "routers"
BERTH_ROUTER_RELOAD = shlex.split(env.str("BERTH_ROUTER_RELOAD", default=""))
