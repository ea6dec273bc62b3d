"""Who may ask a server or a node for what, and how much at once."""

import asyncio
from base64 import b64encode
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from rebafl.federation import guard
from rebafl.federation.flower_changes.serving import signer
from rebafl.federation.guard import HEADER, MOST_WAITING, guarded, proof, secret_only

SECRET = b"sixteen or more bytes"
PROOF = (HEADER.encode(), proof(SECRET).encode())


def request(path, client, length: bytes | None = b"0", headers=(), server="10.0.0.1"):
    sizes = [] if length is None else [(b"content-length", length)]
    return {
        "type": "http", "path": path, "client": (client, 4711), "server": (server, 9092), "headers": [*sizes, *headers],
    }  # fmt: skip


async def ok(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def nothing():
    return {"type": "http.request", "body": b"", "more_body": False}


async def statuses(serve, *scopes):
    """The statuses with which these requests, one after the other, are answered."""
    sent = []

    async def keep(message):
        sent.append(message)

    for scope in scopes:
        await serve(scope, nothing, keep)
    return [message["status"] for message in sent if message["type"].endswith("start")]


def asked(path, client, length: bytes | None = b"0", headers=(), member=lambda scope: b"a member"):
    """The status with which a guarded application answers a request."""
    (status,) = asyncio.run(statuses(guarded(ok, SECRET, member), request(path, client, length, headers)))
    return status


CLOSED = ["/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs", "/health", "/"]


@pytest.mark.parametrize("path", CLOSED)
def test_other_machines_reach_only_the_fleet_api(path):
    for address in ("10.0.0.7", "no address", "::ffff:10.0.0.7"):
        assert asked(path, address) == asked(path, address, headers=[PROOF]) == 403
    assert asked("/v1/fleet/activate-node", "10.0.0.7") == 200


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "10.0.0.1"])
def test_on_this_machine_the_secret_is_needed_for_all_but_the_fleet_api(path, client):
    assert asked(path, client) == 401
    for wrong in (b"", SECRET, proof(b"another").encode(), PROOF[1][:-1], PROOF[1].upper()):
        assert asked(path, client, headers=[(PROOF[0], wrong)]) == 401
    assert asked(path, client, headers=[PROOF, PROOF]) == 401  # said twice is not said
    assert asked(path, client, headers=[PROOF]) == 200
    assert asked("/v1/fleet/activate-node", client) == 200


def test_what_a_node_serves_needs_the_secret_and_nothing_of_others_is_received():
    received = []

    async def application(scope, receive, send):
        received.append(await receive())
        await ok(scope, receive, send)

    serve = secret_only(application, SECRET)
    path, huge = "/v1/runtime/acquire-task", b"600000000"
    scopes = [request(path, "127.0.0.1"), request("/", "127.0.0.1", huge), request(path, "::1", headers=[PROOF])]
    assert asyncio.run(statuses(serve, *scopes)) == [401, 401, 200]
    assert len(received) == 1


def test_a_websocket_is_not_answered():
    scope = {**request("/v1/fleet/push-object", "127.0.0.1", headers=[PROOF]), "type": "websocket"}
    assert asyncio.run(statuses(guarded(ok, SECRET, lambda scope: b"member"), scope)) == []
    scope["headers"] = []
    assert asyncio.run(statuses(secret_only(ok, SECRET), scope)) == []


@pytest.mark.parametrize("length", [None, b"", b"-1", b"1e3", b"40000000", b"600000000", b"9" * 5000])
def test_a_node_cannot_send_requests_without_end(length):
    assert asked("/v1/fleet/push-object", "10.0.0.7", length) == 413
    assert asked("/v1/fleet/push-object", "127.0.0.1", length) == 413
    assert asked("/v1/runtime/push-object", "127.0.0.1", length, [PROOF]) == 200  # the server's own app may


def test_a_large_request_is_received_from_members_only():
    for client in ("10.0.0.7", "127.0.0.1"):
        assert asked("/v1/fleet/push-object", client, b"30000000", member=lambda scope: None) == 401
        assert asked("/v1/fleet/push-object", client, b"60000", member=lambda scope: None) == 200  # Flower looks
        assert asked("/v1/fleet/push-object", client, b"30000000") == 200


def signed(private, stamp, **changes):
    headers = {
        "flwr-public-key": b64encode(public_key_to_bytes(private.public_key())),
        "flwr-timestamp": stamp.encode(),
        "flwr-signature": b64encode(sign_message(private, stamp.encode())),
    } | {key.replace("_", "-"): value for key, value in changes.items()}
    return {"headers": [(key.encode(), value) for key, value in headers.items() if value is not None]}


def test_a_member_is_known_by_its_signature():
    private, other = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    key, stamp = public_key_to_bytes(private.public_key()), now().isoformat()
    members = {key}
    assert signer(signed(private, stamp), members.__contains__) == key
    assert signer(signed(other, stamp), members.__contains__) is None  # no member
    stolen = dict(signed(other, stamp)["headers"])[b"flwr-signature"]
    for changes in (
        {"flwr_signature": stolen}, {"flwr_signature": None}, {"flwr_signature": b"\xff"}, {"flwr_public_key": b"x"},
        {"flwr_timestamp": now().isoformat().encode()}, {"flwr_timestamp": b"yesterday"}, {"flwr_timestamp": None},
    ):  # fmt: skip
        assert signer(signed(private, stamp, **changes), members.__contains__) is None
    for age in (timedelta(minutes=-2), timedelta(minutes=10)):
        assert signer(signed(private, (now() - age).isoformat()), members.__contains__) is None


def test_only_so_many_bytes_are_received_at_once():
    """Of one member, and of all. Small requests are always heard."""
    size = 30 * 2**20

    async def attack():
        release = asyncio.Event()
        answers: list[tuple[str, int, int]] = []

        async def application(scope, receive, send):
            await release.wait()
            await ok(scope, receive, send)

        serve = guarded(application, SECRET, lambda scope: scope["client"][0].encode())

        async def ask(client, length):
            (status,) = await statuses(serve, request("/v1/fleet/push-object", client, b"%d" % length))
            answers.append((client, length, status))

        first = [asyncio.ensure_future(ask("10.0.0.7", size)) for _ in range(5)]
        first += [asyncio.ensure_future(ask(f"10.0.1.{k}", size)) for k in range(30)]
        first += [asyncio.ensure_future(ask("10.0.0.7", 100))]
        await asyncio.sleep(0.01)
        release.set()
        await asyncio.gather(*first)
        refused = [client for client, _, status in answers if status == 503]
        assert refused.count("10.0.0.7") == 3
        assert len(refused) == 35 - MOST_WAITING // size
        assert ("10.0.0.7", 100, 200) in answers
        answers.clear()
        await ask("10.0.0.7", size)  # what was answered does not count any more
        assert answers == [("10.0.0.7", size, 200)]

    asyncio.run(attack())


def test_a_member_that_never_sends_what_it_announced_does_not_occupy_its_place_for_ever(monkeypatch):
    monkeypatch.setattr(guard, "MOST_SECONDS", 0.05)
    parts = []

    async def application(scope, receive, send):
        parts.append(await receive())
        parts.append(await receive())

    async def attack():
        sent = iter([{"type": "http.request", "body": b"x", "more_body": True}])

        async def receive():
            for part in sent:
                return part
            await asyncio.Event().wait()

        serve = guarded(application, SECRET, lambda scope: b"member")
        await asyncio.wait_for(serve(request("/v1/fleet/push-object", "10.0.0.7", b"30000000"), receive, None), 30)

    asyncio.run(attack())
    assert [part["type"] for part in parts] == ["http.request", "http.disconnect"]


def test_a_reply_is_announced_in_about_as_many_bytes_as_its_order():
    """A tree of thousands of objects would block the SuperLink's database."""
    order, reply, here = "/v1/runtime/push-messages", "/v1/fleet/push-messages", "127.0.0.1"
    serve = guarded(ok, SECRET, lambda scope: b"member")
    scopes = [
        request(reply, here, b"10000"),
        request(reply, here, b"30000"),  # before any order
        request(order, here, b"900000"),  # without the secret it is none
        request(order, here, b"10000", [PROOF]),
        request(reply, here, b"30001"),
        request(reply, here, b"40000"),
    ]
    assert asyncio.run(statuses(serve, *scopes)) == [200, 413, 401, 200, 200, 413]
