"""Sampling interval of utilization, and when an allocated GPU counts as idle."""

from berth.server.settings.base import env

BERTH_MEASURE_SECONDS = env.int("BERTH_MEASURE_SECONDS", default=15)  # 0: not at all
BERTH_IDLE_GPU_PERCENT = env.int("BERTH_IDLE_GPU_PERCENT", default=5)  # busy for less of the time is idle
BERTH_IDLE_GPU_MINUTES = env.int("BERTH_IDLE_GPU_MINUTES", default=60)  # for so long is worth a warning
