"""Here scenarios are measured; run from the repository, installed or not."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "platform")]
