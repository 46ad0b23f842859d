"""A Kafka broker that wants TLS and a password on a second port, with certificates of its own making."""

from __future__ import annotations

from pathlib import Path

from tests.servers.certificates import make_certificates, openssl

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.process import free_port

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
        both = ("-in", "server.pem", "-inkey", "server.key", "-out", "server.p12")
        openssl(self._folder, "pkcs12", "-export", *both, "-passout", f"pass:{_STORE}")
        text = super()._settings()
        for name in ("listeners", "advertised.listeners"):
            text = text.replace(f"\n{name}=", f"\n{name}=SASL_SSL://{self.secure_servers},")
        text = text.replace("protocol.map=", "protocol.map=SASL_SSL:SASL_SSL,")
        keystore = self._folder / "server.p12"
        return text + _PROPERTIES.format(user=USER, password=self._password, keystore=keystore, store=_STORE)
