"""What does a node's config say? Which data are the node's own, and where it keeps its state.

partition-id=3          the part of the run's data set that has this number, as in simulations
data="/srv/images"      the device's own data instead: an .npz or a folder of class folders
state="/srv/state"      a folder for what the client keeps between rounds
key="/srv/node.key"     the node's private key, with which it signs in masked rounds
members="/srv/members.toml"   the public keys of all clients, by which it knows the others in masked rounds
"""

from __future__ import annotations

PARTITION_ID, DATA, STATE = "partition-id", "data", "state"
KEY, MEMBERS_FILE = "key", "members"
OWN_DATA = -1  # what a node with its own data says when it is asked for its partition-id
