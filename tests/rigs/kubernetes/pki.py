"""The certificates of a cluster, and the tokens of its service accounts."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

USAGES = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Pki:
    """An authority of its own; what it has signed lies in the folder as NAME.crt and NAME.key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.ca = folder / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dray-tests")])
        self._write("ca", self._sign(self._name, self._key.public_key(), authority=True), self._key)
        self.sa_key = folder / "sa.key"
        self._accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        write_key(self.sa_key, self._accounts)

    def bundle(self) -> str:
        """The authority's certificate, as it is written into objects."""
        return base64.b64encode(self.ca.read_bytes()).decode()

    def issue(self, name: str, user: str, group: str = "", hosts: tuple[str, ...] = ()) -> None:
        """Make a certificate for ``user``, who may also serve as one of these hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            names.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        self._write(name, self._sign(x509.Name(names), key.public_key(), hosts=hosts), key)

    def token(self, claims: Mapping[str, object]) -> str:
        """Sign a service account's token: also one that is long past, which no API server gives."""
        head = {"alg": "RS256", "typ": "JWT", "kid": self._key_id()}
        text = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = self._accounts.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{encoded(signature)}"

    def _key_id(self) -> str:
        public = self._accounts.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashes.Hash(hashes.SHA256())
        digest.update(public)
        return encoded(digest.finalize())

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        hosts: tuple[str, ...] = (),
        *,
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=7))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if authority:
            own = x509.SubjectKeyIdentifier.from_public_key(key)
            builder = builder.add_extension(own, critical=False)
            builder = builder.add_extension(SIGNS, critical=True)
        else:
            signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(signer, critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage(USAGES), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([host_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (self.folder / f"{name}.crt").write_bytes(pem)
        write_key(self.folder / f"{name}.key", key)


def host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
