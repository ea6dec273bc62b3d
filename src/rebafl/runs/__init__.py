"""What is one run, from its settings to the exported model? Everything that is recorded, resumed and repeated."""
