"""Channels of a running pod: commands that users start in the pod, with input and output.

A channel is a stream of frames over one connection. A relay process outside the pod serves each channel.
"""
