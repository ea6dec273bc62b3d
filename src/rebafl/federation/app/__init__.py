"""How does the same algorithm run on real machines? As a Flower app: a ClientApp, a ServerApp and what they send.

`server` is what the ServerApp does, `node` what the ClientApp does; the modules beside them are for both.

`server_app.app` and `client_app.app` are named in `pyproject.toml`; importing them needs `rebafl[flower]`.
"""
