"""Stand-in for training: each trainer registers, then waits until all six have joined."""

import os
import sys
import time
from pathlib import Path

TRAINERS = 6
PROBE_TIMEOUT_SECONDS = 240

run = f"{os.environ['BERTH_WORKLOAD_ID']}-{os.environ['BERTH_RUN']}"
joined = Path(f"trainers-{run}")
joined.mkdir(exist_ok=True)
(joined / os.environ["BERTH_INDEX"]).touch()
deadline = time.monotonic() + PROBE_TIMEOUT_SECONDS
while (count := len(list(joined.iterdir()))) < TRAINERS:
    if time.monotonic() > deadline:
        sys.exit(f"only {count} of {TRAINERS} trainers joined")
    time.sleep(0.1)
print(f"trainer {os.environ['BERTH_INDEX']} on {os.environ['BERTH_NODE']} trained with {count} trainers")
