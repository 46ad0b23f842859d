"""A Kafka broker that wants TLS and a password on a second port, with certificates of its own making."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.servers.kafka import Kafka
from tests.servers.process import ServerError, free_port

USER = "windrow"
_STORE = "a password of the key store"

_PROPERTIES = """\
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl_ssl.ssl.keystore.type=PKCS12
listener.name.sasl_ssl.ssl.keystore.location={keystore}
listener.name.sasl_ssl.ssl.keystore.password={store}
"""


class SecureKafka(Kafka):
    """As `Kafka`, which administers it without them; `secure_servers` wants `USER` and the password."""

    def __init__(self, folder: Path, password: str) -> None:
        super().__init__(folder)
        self._folder = folder
        self._password = password
        self._secure_port = free_port()

    @property
    def secure_servers(self) -> str:
        return f"127.0.0.1:{self._secure_port}"

    @property
    def authority(self) -> Path:
        """The certificate that clients must trust."""
        return self._folder / "ca.pem"

    def _settings(self) -> str:
        make_certificates(self._folder)
        text = super()._settings()
        for name in ("listeners", "advertised.listeners"):
            text = text.replace(f"\n{name}=", f"\n{name}=SASL_SSL://{self.secure_servers},")
        text = text.replace("protocol.map=", "protocol.map=SASL_SSL:SASL_SSL,")
        keystore = self._folder / "server.p12"
        return text + _PROPERTIES.format(user=USER, password=self._password, keystore=keystore, store=_STORE)


def make_certificates(folder: Path) -> None:
    """Write an authority `ca.pem`, and a key with a certificate for 127.0.0.1: `server.key`, `.pem` and `.p12`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "san.txt").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    commands = [
        (*new, "-x509", "-days", "2", "-subj", "/CN=windrow tests", "-keyout", "ca.key", "-out", "ca.pem"),
        (*new, "-subj", "/CN=127.0.0.1", "-keyout", "server.key", "-out", "server.csr"),
        (
            *("x509", "-req", "-days", "2", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-extfile", "san.txt", "-out", "server.pem"),
        ),
        (
            *("pkcs12", "-export", "-in", "server.pem", "-inkey", "server.key"),
            *("-passout", f"pass:{_STORE}", "-out", "server.p12"),
        ),
    ]
    openssl = shutil.which("openssl")
    if openssl is None:
        message = "openssl is not installed"
        raise ServerError(message)
    for arguments in commands:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)
