"""Retention periods in days."""

from berth.server.settings.base import env

BERTH_KEEP_DAYS = {
    "tokens": env.int("BERTH_KEEP_TOKENS", default=30),  # after they ended
    "deliveries": env.int("BERTH_KEEP_DELIVERIES", default=90),
    "cycles": env.int("BERTH_KEEP_CYCLES", default=30),
    "use by the minute": env.int("BERTH_KEEP_USE_MINUTES", default=1),
    "use by the hour": env.int("BERTH_KEEP_USE_HOURS", default=90),
    "snapshots": env.int("BERTH_KEEP_SNAPSHOTS", default=2),
}
BERTH_SNAPSHOT_MIB = env.int("BERTH_SNAPSHOT_MIB", default=256)  # of what cycles saw, all together
