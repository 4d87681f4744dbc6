"""Small but complete programs for trying out Berth, such as `python -m berth.examples.train_numpy`."""

import os

# Use one thread per rank, because ranks share the processors of this machine and the matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
