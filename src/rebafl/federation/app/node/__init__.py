"""What does a node of a federation do? It trains as it is asked to, and keeps its client's state between rounds."""
