"""What does it take to run a federation on real machines? Keys, start scripts, processes, their status."""
