"""Channels of a running pod, which connect users to commands.

A channel is a stream of frames over one connection, served by a relay outside the pod.
"""
