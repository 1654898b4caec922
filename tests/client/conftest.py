"""A lying provider, over TLS too, and a client of it that waits little between its tries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provider import MakeClient, Provider

from nftsync.provider import Client


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A key and a certificate of 127.0.0.1, signed by itself, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    key, cert, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, *names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return str(both)


@pytest.fixture
def make_client(provider: Provider) -> Iterator[MakeClient]:
    with ExitStack() as stack:

        def make(**arguments: Any) -> Client:
            arguments = {"timeout": 10.0, "first_wait": 0.01, **arguments}
            return stack.enter_context(Client(arguments.pop("url", provider.url), **arguments))

        yield make
