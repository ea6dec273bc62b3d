"""What does every other package stand on? Errors, settings as typed values, random streams, tensors, files."""
