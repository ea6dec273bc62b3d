"""How does a server learn the sum of the clients' vectors and no vector of its own? By masks that cancel in the sum.

Double masking after Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017).
Not reviewed by cryptographers, and meant for a server that is curious but follows the protocol: see docs/secagg.md.
"""
