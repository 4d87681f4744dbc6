"""Channels of a running pod.

Each channel connects a user to a command in the pod. A channel is a stream of frames over one connection, and
is served by a relay process outside the pod.
"""
