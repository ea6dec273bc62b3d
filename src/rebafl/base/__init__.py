"""What does every other room stand on? Errors, settings as typed values, random streams, named tensors, whole files."""
