"""SFTP server (version 3) for a pod's files, used by `sftp`, `scp` and `sshfs`.

Runs as the pod's user and needs nothing from the image.
"""
