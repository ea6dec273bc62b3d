"""What does it take to run a federation on real machines? Keys, processes, and someone to look after them."""
