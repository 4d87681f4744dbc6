"""Limit and check what a pod uses: memory, CPU, processes, disk and size of its log."""
