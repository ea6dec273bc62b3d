"""What does a client compute in a round? The one training loop, what it runs on, and how a model is scored."""
