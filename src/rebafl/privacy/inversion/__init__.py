"""Can pictures be made again from a mean of their features? Reconstruction attacks and what they show."""
