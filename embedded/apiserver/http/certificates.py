"""The embedded API server's certificate: an authority of this cluster's own, and one server certificate made by it.

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
"""The longest that every client accepts of a server certificate."""
RENEWAL_DAYS = 90
"""A certificate with less left is made anew at the next start."""
_BACKDATED = timedelta(hours=1)
"""So that a clock set back a little does not refuse a new certificate."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and the key that belongs to it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def expires_within(self, now: datetime, days: int) -> bool:
        """Whether it is over, or nearly."""
        return self.certificate.not_valid_after_utc - now < timedelta(days=days)


def prepare(layout: Layout, now: datetime) -> None:
    """Have a valid authority and server certificate in the data folder; what is good is left alone."""
    authority = _load(layout, "ca")
    if authority is None or authority.expires_within(now, RENEWAL_DAYS):
        authority = _authority(now)
        _keep(layout, "ca", authority)
    server = _load(layout, "server")
    if server is None or server.expires_within(now, RENEWAL_DAYS) or not _issued(server, authority):
        _keep(layout, "server", _server(authority, now))


def context(layout: Layout) -> ssl.SSLContext:
    """How the server speaks TLS, with the certificate that `prepare` has made."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    found.options |= ssl.OP_NO_RENEGOTIATION
    found.set_alpn_protocols(["http/1.1"])
    found.load_cert_chain(layout.certificate("server"), layout.key("server"))
    return found


def authority_pem(layout: Layout) -> bytes:
    """The authority's certificate, for kubeconfigs."""
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


def _issued(server: Identity, authority: Identity) -> bool:
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # InvalidSignature, ValueError, TypeError: of another authority in any case
        return False
    return True


def _load(layout: Layout, name: str) -> Identity | None:
    """A kept identity; None if there is none that can be used."""
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
