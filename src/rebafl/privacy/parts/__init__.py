"""What does each attack find in a run? One module per attack, from replayed rounds to its part of the audit."""
