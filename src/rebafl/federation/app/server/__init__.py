"""What does the server of a federation do? It asks clients, collects and checks their replies, and closes rounds."""
