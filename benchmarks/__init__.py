"""Performance benchmarks, which run from a checkout of the repository."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "platform")]
