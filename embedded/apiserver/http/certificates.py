"""The certificates of the embedded API server: this cluster's own authority, and the server certificate it issued.

One rule: private keys are written to files of mode 0600 in the data folder and nowhere else.
"""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from embedded.apiserver.http import token
from embedded.layout import Layout

NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESSES = ("127.0.0.1", "::1")
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
"""The longest validity of a server certificate that every client accepts."""
RENEWAL_DAYS = 90
"""A certificate that is valid for a shorter time is replaced at the next start."""
_BACKDATED = timedelta(hours=1)
"""The validity begins in the past, so that a client with a clock a little behind accepts a new certificate."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and the key that belongs to it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def expires_within(self, now: datetime, days: int) -> bool:
        """Return whether the certificate expires within some days, or has expired."""
        return self.certificate.not_valid_after_utc - now < timedelta(days=days)


def prepare(layout: Layout, now: datetime) -> None:
    """Ensure that the data folder has a valid authority and server certificate; valid ones do not change."""
    authority = _load(layout, "ca")
    if authority is None or authority.expires_within(now, RENEWAL_DAYS):
        authority = _authority(now)
        _keep(layout, "ca", authority)
    server = _load(layout, "server")
    if server is None or server.expires_within(now, RENEWAL_DAYS) or not _is_issued_by(server, authority):
        _keep(layout, "server", _server(authority, now))


def context(layout: Layout) -> ssl.SSLContext:
    """Return the server's TLS settings, with the certificate of `prepare`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.options |= ssl.OP_NO_RENEGOTIATION
    tls.set_alpn_protocols(["http/1.1"])
    tls.load_cert_chain(layout.certificate("server"), layout.key("server"))
    return tls


def authority_pem(layout: Layout) -> bytes:
    """Return the authority's certificate, for kubeconfigs."""
    return layout.certificate("ca").read_bytes()


def _authority(now: datetime) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("torchq-local-ca")
    usage = _usage(signing=True)
    builder = (
        _begin(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Identity(builder.sign(key, hashes.SHA256()), key)


def _server(authority: Identity, now: datetime) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
    names = x509.SubjectAlternativeName([*map(x509.DNSName, NAMES), *addresses])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _begin(_name("torchq-local"), authority.certificate.subject, key, now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signing=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer, critical=False)
    )
    return Identity(builder.sign(authority.key, hashes.SHA256()), key)


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signing: bool) -> x509.KeyUsage:
    off = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    flags = dict.fromkeys((*off, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not signing, key_cert_sign=signing, crl_sign=signing, **flags)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _is_issued_by(server: Identity, authority: Identity) -> bool:
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # InvalidSignature, ValueError, TypeError: each means another authority
        return False
    return True


def _load(layout: Layout, name: str) -> Identity | None:
    """Return a stored identity; None if there is no identity, or the stored identity cannot be used."""
    try:
        certificate = x509.load_pem_x509_certificate(layout.certificate(name).read_bytes())
        key = serialization.load_pem_private_key(layout.key(name).read_bytes(), password=None)
    except (OSError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Identity(certificate, key)


def _keep(layout: Layout, name: str, identity: Identity) -> None:
    form = serialization.Encoding.PEM
    key = identity.key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    token.write_private(layout.key(name), key.decode())
    token.write_private(layout.certificate(name), identity.certificate.public_bytes(form).decode())
