"""Why does a server not answer? Its certificate may have expired, or be that of somebody else."""

from __future__ import annotations

import datetime
import socket
import ssl
from pathlib import Path

from ...base.errors import UserError

SECONDS = 10.0  # that a server may take to show its certificate
EXPIRED, NOT_YET = 10, 9  # OpenSSL's numbers


def distrust(server: str, authority: Path) -> str:
    """Why the certificate of the server at this address is not believed, in a sentence; empty if it is, or unknown."""
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with (
            socket.create_connection((host, int(port)), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == EXPIRED:
            return (
                f"The certificate of the server at {server}, or that of its authority in {authority}, has expired; "
                "renew them with: rebafl federation renew"
            )
        if error.verify_code == NOT_YET:
            return f"The certificate of the server at {server} is not valid yet; set the clocks of both machines."
        return (
            f"The certificate of the server at {server} is not believed ({error.verify_message}); {authority} must be "
            "the one that was made with it, and the address one of those that it is for."
        )
    except (OSError, ValueError):
        return ""


def need_valid(certificate: Path, renew: str) -> None:
    """Raise unless a certificate is there and valid now; `renew` is the command that makes a new one."""
    from cryptography import x509  # comes with Flower

    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"The certificate {certificate} cannot be read ({error}); restore it, or: {renew}") from None
    now = datetime.datetime.now(datetime.timezone.utc)
    if read.not_valid_after_utc <= now:
        raise UserError(
            f"The certificate {certificate} expired on {read.not_valid_after_utc:%Y-%m-%d}; renew it: {renew}"
        )
    if read.not_valid_before_utc > now:
        raise UserError(
            f"The certificate {certificate} is valid from {read.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on; "
            "set this machine's clock."
        )
