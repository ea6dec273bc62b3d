"""What does secure aggregation cost? The table of docs/secagg.md: processor time of one thread on this machine.

python tools/measure_secagg.py
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rebafl.secagg.client import Client
from rebafl.secagg.fixed_point import Layout, Part
from rebafl.secagg.messages import Stage
from rebafl.secagg.server import Server
from rebafl.secagg.terms import Terms

TIMES = 5  # each round is done so often, and the median is shown


def measure(numbers: int, count: int, dropped: int) -> tuple[float, float, float, int]:
    """Milliseconds of one client; of it, for encoding its tensors; of the server; and bytes that a client sends."""
    keys = {client: ec.generate_private_key(ec.SECP384R1()) for client in range(count)}
    pem = {c: key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for c, key in keys.items()}
    layout = Layout((Part("w", (numbers,), 24, 1000.0),), count)
    terms = Terms(b"measured", pem, count * 2 // 3 + 1, layout)
    values = np.random.default_rng(0).standard_normal(numbers).astype(np.float32)
    spent: Counter[str] = Counter()
    sent: Counter[int] = Counter()

    def timed(what, act, *given):
        began = time.process_time()
        result = act(*given)
        spent[what] += time.process_time() - began
        return result

    server = Server(terms)
    clients = {client: Client(terms, client, key) for client, key in keys.items()}
    vectors = {client: timed("encode", layout.encode, {"w": values}) for client in clients}
    messages = dict.fromkeys(clients, b"")
    while server.stage is not Stage.DONE:
        for client, message in messages.items():
            one = clients[client]
            steps = {
                Stage.ADVERTISE: (one.advertise,),
                Stage.SHARE: (one.share, message),
                Stage.MASK: (one.mask, message, vectors[client]),
                Stage.AGREE: (one.agree, message),
                Stage.UNMASK: (one.unmask, message),
            }
            if server.stage is Stage.MASK and client < dropped:
                continue
            answer = timed("client" if client >= dropped else "lost", *steps[server.stage])
            sent[client] += len(answer)
            timed("server", server.take, answer)
        messages = timed("server", server.close)
    encode = spent["encode"] / count
    return 1e3 * (spent["client"] / (count - dropped) + encode), 1e3 * encode, 1e3 * spent["server"], sent[count - 1]


def main() -> None:
    print("| numbers | clients | lost | one client, ms | of it encoding, ms | server, ms | sent by a client |")
    print("|---|---|---|---|---|---|---|")
    for numbers in (100_000, 1_000_000):
        for count in (10, 20):
            for dropped in (0, count // 10):
                measured = np.median([measure(numbers, count, dropped) for _ in range(TIMES)], axis=0)
                client, encode, server, size = measured
                shown = f"{client:.0f} | {encode:.1f} | {server:.0f} | {size / 1e6:.2f} MB"
                print(f"| {numbers:,} | {count} | {dropped} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
