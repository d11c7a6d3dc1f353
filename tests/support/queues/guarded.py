"""A Redis server that is secured as in production: with accounts, and with TLS under certificates made for the test."""

import contextlib
import datetime
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from queues.redis import acl
from tests.support import ports, redis_server
from tests.support.queues import tls_front
from tests.support.waiting import until

WRITES, READS, RULES, WORKS = "wr1te-s3cret", "re4d-s3cret", "adm1n-s3cret", "w0rk-s3cret"
"""The passwords of the coordinator, of readers, of the admin, and of workers."""


@dataclass(frozen=True)
class Guarded:
    """A running Redis server with accounts and TLS."""

    folder: Path
    port: int

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def url(self, account: str = "torchq", password: str = WRITES) -> str:
        """Return the URL of the unix socket for this account."""
        return f"unix://{account}:{password}@{self.socket}"

    @property
    def reader(self) -> str:
        return self.url("torchq-reader", READS)

    @property
    def worker(self) -> str:
        return self.url("torchq-worker", WORKS)

    def tls(self, *, host: str = "127.0.0.1", **options: str) -> str:
        """Return the URL for TLS. `options` replace single options of the valid URL."""
        files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
        given = {**{name: str(self.folder / file) for name, file in files.items()}, **options}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value)
        return f"rediss://torchq:{WRITES}@{host}:{self.port}/0?{query}"

    def admin(self) -> "redis.Redis":
        return redis.Redis(unix_socket_path=str(self.socket), username="admin", password=RULES)


@contextmanager
def guarded(folder: Path) -> Iterator[Guarded]:
    """Run a server with torchq's accounts and an admin, on a unix socket and with TLS for clients with a certificate.

    A server that was built without TLS gets a TLS proxy in front of it. Skips the test if no server is installed.
    """
    server = redis_server.program()
    certify(folder)
    admin = f"user admin on >{RULES} ~* &* +@all\n"
    (folder / "users.acl").write_text(acl.acl(WRITES, READS, worker=WORKS) + admin)
    with ports.reserve() as port:
        found = Guarded(folder, port)
        speaks_tls = _speaks_tls(server)
        command = [server, *_options(found, speaks_tls)]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            until(lambda: _answers(found))
            with contextlib.nullcontext() if speaks_tls else tls_front.listening(port, folder, found.socket):
                yield found
        finally:
            process.kill()
            process.wait()


def _speaks_tls(server: str) -> bool:
    """Return whether the server was built with TLS. Only a server with TLS complains about the missing certificate."""
    done = subprocess.run([server, "--port", "0", "--tls-port", "1"], capture_output=True, text=True, check=False)
    return "Failed to configure TLS" in done.stdout + done.stderr


def _options(found: Guarded, tls: bool) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(found.socket),
        "aclfile": str(found.folder / "users.acl"),
        "save": "",
    }
    return [word for name, value in (options | (_tls(found) if tls else {})).items() for word in (f"--{name}", value)]


def _tls(found: Guarded) -> dict[str, str]:
    return {
        "tls-port": str(found.port),
        "bind": "127.0.0.1",
        "tls-ca-cert-file": str(found.folder / "ca.crt"),
        "tls-cert-file": str(found.folder / "server.crt"),
        "tls-key-file": str(found.folder / "server.key"),
        "tls-auth-clients": "yes",
    }


def _answers(found: Guarded) -> bool:
    client = found.admin()
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()


def certify(folder: Path) -> None:
    """Write a CA, a certificate for a server at 127.0.0.1 and a certificate for a client into the folder."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("test CA", ca_key, None, ca_key)
    _write(folder, "ca", ca, ca_key)
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, name, _certificate(name, key, ca, ca_key), key)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate | None,
    ca_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.subject if ca else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return builder.sign(ca_key, hashes.SHA256())


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.key").write_bytes(private)
