"""Small real programs to try Berth with, such as `python -m berth.examples.train_numpy`."""

import os

# One rank is one thread: ranks share this machine's processors, and the matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
