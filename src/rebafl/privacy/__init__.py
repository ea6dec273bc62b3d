"""What do a run's messages give away? Uploads are replayed and attacked, and every attack is held to its controls."""
