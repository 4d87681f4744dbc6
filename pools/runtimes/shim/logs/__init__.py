"""Write a pod's log, and record the times of its parts."""
