"""SFTP server for the files of a pod, protocol version 3, which `sftp`, `scp` and `sshfs` use.

Like copies, it runs in the pod as the pod's user and needs nothing from the image.
"""
