"""Decide how many inference engines a service needs, based on its metrics.

The service loop adds each sample with `conditions.add_sample` and then calls `decide.decide`, which does not
change the samples.
"""
