"""What came out of runs, as tables and pictures."""
