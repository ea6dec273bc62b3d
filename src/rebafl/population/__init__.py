"""Who holds which samples, and who takes part in a round? Both follow from the settings and the seed alone."""
