"""What happens in a federation, to look at? Views of runs: a local page that follows them, and a file to be mailed."""
