"""Who is who? A certificate authority, a certificate for the server, and a key pair for each node."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...base.errors import UserError
from ...base.files import write_secret, write_whole

YEARS, AUTHORITY_YEARS = 5, 25
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def make_authority(certificate: Path, key: Path) -> None:
    """A certificate authority for this federation alone: its nodes trust no other."""
    private = ec.generate_private_key(ec.SECP384R1())
    write_secret(key, _pem(private))
    _certify_authority(certificate, private)


def renew_authority(certificate: Path, key: Path) -> bool:
    """The same authority for longer, if a certificate of the server would outlast it; was that so?

    What it has signed stays valid, and who trusts its old certificate may do so until that one expires.
    """
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    if read.not_valid_after_utc >= _now() + datetime.timedelta(days=365 * YEARS):
        return False
    _certify_authority(certificate, _private_key(key))
    return True


def _certify_authority(certificate: Path, private: ec.EllipticCurvePrivateKey) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rebafl federation")])
    built = (
        _certificate(name, name, private.public_key(), AUTHORITY_YEARS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(private, hashes.SHA384())
    )
    write_whole(certificate, built.public_bytes(serialization.Encoding.PEM))


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    private = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return private


def make_runtime_certificate(folder: Path) -> None:
    """`runtime.crt` and `runtime.key`, by which a node's own processes know each other on 127.0.0.1."""
    private = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rebafl node")])
    built = (
        _certificate(name, name, private.public_key(), AUTHORITY_YEARS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in LOOPBACK]), critical=False)
        .sign(private, hashes.SHA384())
    )
    write_secret(folder / "runtime.key", _pem(private))
    write_whole(folder / "runtime.crt", built.public_bytes(serialization.Encoding.PEM))


def make_server_certificate(authority: Path, authority_key: Path, folder: Path, hosts: Iterable[str]) -> None:
    """`server.crt` and `server.key`, good for the loopback addresses and all `hosts`."""
    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    signer = _private_key(authority_key)
    private = ec.generate_private_key(ec.SECP384R1())
    names = [_host(host) for host in dict.fromkeys([*LOOPBACK, *hosts])]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rebafl server")])
    built = (
        _certificate(subject, issuer.subject, private.public_key(), YEARS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    write_secret(folder / "server.key", _pem(private))
    write_whole(folder / "server.crt", built.public_bytes(serialization.Encoding.PEM))


def make_node_key(folder: Path, name: str) -> str:
    """`node.key` in the format that a SuperNode reads; returns the public key as one line."""
    private = ec.generate_private_key(ec.SECP384R1())
    ssh = serialization.PrivateFormat.OpenSSH
    write_secret(
        folder / "node.key",
        private.private_bytes(serialization.Encoding.PEM, ssh, serialization.NoEncryption()),
    )
    line = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{line.decode()} {name}"


def _certificate(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, years: int
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=365 * years))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9.-]+", host):
            raise UserError(f"--host {host!r} is neither a name nor an IP address.") from None
        return x509.DNSName(host)


def _pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    pkcs8 = serialization.PrivateFormat.PKCS8
    return private.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())
