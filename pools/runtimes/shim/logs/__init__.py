"""Write a pod's log, and record when its parts were written."""
