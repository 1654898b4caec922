"""A lying provider, over TLS too, and a client of it that waits little between its tries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provider import MakeClient, Provider

from nftsync.provider.client import Client, ClientConfig
from nftsync.provider.rate_limiter import RateLimiter


@pytest.fixture(autouse=True)
def _own_settings(own_settings: None) -> None:
    pass


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


class Certificates(NamedTuple):
    """Files in PEM form, all signed by one CA, each with its key."""

    ca: str
    server: str
    client: str
    client_certificate_alone: str
    client_key_alone: str
    locked: str


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and what it signed: the server `provider.test` (or 127.0.0.1), and a client."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]

    def make(name: str, *options: str) -> Path:
        files = ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"]
        command = ["openssl", "req", "-x509", *kind, "-subj", f"/CN={name}", *files, *options]
        subprocess.run(command, check=True, capture_output=True)
        both = folder / f"{name}.pem"
        both.write_bytes(b"".join((folder / f"{name}.{x}").read_bytes() for x in ("key", "crt")))
        return both

    make("ca", "-nodes")
    signed = ["-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
    names = "subjectAltName=DNS:provider.test,IP:127.0.0.1"
    return Certificates(
        f"{folder}/ca.crt",
        str(make("server", "-nodes", *signed, "-addext", names)),
        str(make("client", "-nodes", *signed)),
        f"{folder}/client.crt",
        f"{folder}/client.key",
        str(make("locked", *signed, "-passout", "pass:hush")),
    )


@pytest.fixture
def make_client(provider: Provider) -> Iterator[MakeClient]:
    """Makes a client; what is no field of its config is a limiter that it shares, or `urgent`."""
    with ExitStack() as stack:

        def make(*, limiter: RateLimiter | None = None, urgent: bool = False, **of: Any) -> Client:
            given = {"base_url": provider.url, "timeout": 10.0, "first_wait": 0.01, **of}
            config = ClientConfig(**given)
            access = config.access()
            if limiter is not None:
                access = access._replace(limiter=limiter)
            return stack.enter_context(Client(config, access, urgent=urgent))

        yield make
