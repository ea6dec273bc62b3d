"""Who holds which samples, and who takes part in a round?"""
