"""A provider that costs next to nothing: the same wallets as static files, from nginx or asyncio.

nginx (Debian's package) is used where it is installed. Otherwise a process of ours answers from
memory, as fast as Python's asyncio does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from nftsync.sandbox.generator import generate

NGINX = """
{user} worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 10000000; default_type application/json; etag {etag};
    if_modified_since off; tcp_nodelay on; open_file_cache max=20000 inactive=600s;
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{port} backlog=512; root {folder}/www; }}
}}
"""


def write_world(folder: Path, wallets: int, nfts: int) -> list[str]:
    """Write a made-up world as static files; return its wallets' ids."""
    world = generate(wallets=wallets, nfts=nfts, seed=1, image_base="http://127.0.0.1")
    for wallet in world.wallets():
        place = folder / "www/v1/wallets" / wallet
        place.mkdir(parents=True)
        (place / "nft-balances").write_bytes(world.balances_body(wallet) or b"")
    return world.wallets()


@contextlib.contextmanager
def static_provider(folder: Path, *, etag: bool = False) -> Iterator[tuple[str, str]]:
    """Serve what `write_world` wrote; yields the base URL and what serves it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if nginx := shutil.which("nginx"):
        config = folder / "nginx.conf"
        config.write_text(
            NGINX.format(
                user="user root;" if os.geteuid() == 0 else "",
                folder=folder,
                port=port,
                etag="on" if etag else "off",
            )
        )
        command, name = [nginx, "-c", str(config)], "nginx"
    else:
        command, name = [sys.executable, __file__, str(folder / "www"), str(port)], "asyncio"
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", name
    finally:
        process.terminate()
        process.wait()


class _Static(asyncio.Protocol):
    """Answers GETs one after the other, out of a dictionary."""

    answers: dict[bytes, bytes] = {}  # noqa: RUF012 - filled once, before the server starts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        *requests, self.rest = (self.rest + data).split(b"\r\n\r\n")
        for request in requests:
            path = request.split(b" ", 2)[1]
            self.transport.write(
                self.answers.get(path, b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")
            )


async def _serve(root: Path, port: int) -> None:
    for file in root.rglob("nft-balances"):
        body = file.read_bytes()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        _Static.answers[b"/" + bytes(file.relative_to(root))] = f"{head}\r\n\r\n".encode() + body
    server = await asyncio.get_running_loop().create_server(_Static, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
