"""What is a model here? The contract that every model keeps, the paper's networks, and how own models come in."""
