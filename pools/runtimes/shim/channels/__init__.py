"""Channels of a running pod. Each channel connects a user to a command that runs in the pod.

A channel is a stream of frames over one connection. A relay process outside the pod serves each channel.
"""
