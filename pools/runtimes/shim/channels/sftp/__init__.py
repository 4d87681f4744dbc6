"""SFTP server (version 3) for the files of a pod, for `sftp`, `scp` and `sshfs`.

The server runs in the pod as the pod's user and needs nothing from the image.
"""
