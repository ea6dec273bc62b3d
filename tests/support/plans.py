"""A federation of two nodes on this machine, for tests that start none of them."""

from rebafl.federation.ops.layout import Plan

SMALL = Plan(2, (), "127.0.0.1", 9092, (9093, 9094))
