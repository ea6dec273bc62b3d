"""How does the same algorithm run on real machines? As a Flower app: a ClientApp, a ServerApp and what they send.

`server_app.app` and `client_app.app` are named in `pyproject.toml`; importing them needs `rebafl[flower]`.
"""
