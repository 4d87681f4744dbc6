"""Start Berth's processes for benchmarks, and record what they do."""
