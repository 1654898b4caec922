"""A fast provider: wallets as static files, served by nginx or the provider double of the tests.

nginx (Debian's package; for delayed responses also libnginx-mod-http-echo) serves the files if it
is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.commands import free_port, wait_for
from nftsync.sandbox.generator import generate
from tests.kit.provider import Peer, reply
from tests.kit.provider import Provider as Double

ECHO_MODULE = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")
_AMOUNT = re.compile(rb'"amount":"(\d+)"')
MOST_FILES = 16_384  # that the server has open at once
NGINX = """
{module} {user} worker_processes 1; daemon off; pid {folder}/nginx.pid;
worker_rlimit_nofile {files}; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    log_format bytes '$body_bytes_sent'; access_log {log}; default_type application/json;
    keepalive_requests 10000000; etag {etag}; if_modified_since off; tcp_nodelay on;
    open_file_cache {cache};
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{port} backlog=512; {locations} }}
}}
"""
AT_ONCE = "root {folder}/www; location / {{ try_files $uri ={missing}; }}"
AFTER_A_WHILE = """
location / {{ echo_sleep {delay}; echo_exec /files$uri; }}
location /files/ {{ internal; alias {folder}/www/; }}
"""


class Provider(NamedTuple):
    """The URL of a running provider, its server, and the log of the sizes of its responses."""

    url: str
    server: str
    log: Path

    def sent(self, requests: int) -> int:
        """Return the bytes of all bodies so far; wait until so many requests are in the log."""
        for _ in range(200):
            lines = self.log.read_text().splitlines()
            if len(lines) >= requests:
                return sum(map(int, lines))
            time.sleep(0.02)
        raise SystemExit(f"the provider logged {len(lines)} of {requests} requests")


def write_world(folder: Path, wallets: int, nfts: int, seed: int = 1) -> list[str]:
    """Write a generated world as static files; return its wallets' ids."""
    # Only the fields of the provider's document, as in all earlier measurements.
    base = "http://127.0.0.1"
    world = generate(wallets=wallets, nfts=nfts, seed=seed, image_base=base, traits=False)
    for wallet in world.wallets():
        file = body_file(folder, wallet)
        file.parent.mkdir(parents=True)
        file.write_bytes(world.balances_body(wallet) or b"")
    return world.wallets()


def body_file(folder: Path, wallet: str) -> Path:
    """Return the file of a wallet's response."""
    return folder / "www/v1/wallets" / wallet / "nft-balances"


def change_amount(folder: Path, wallet: str, chance: Random) -> None:
    """Increase the amount of one of a wallet's tokens."""
    file = body_file(folder, wallet)
    body = file.read_bytes()
    amount = chance.choice(list(_AMOUNT.finditer(body)))
    start, end = amount.span(1)
    new = file.with_suffix(".new")
    new.write_bytes(body[:start] + b"%d" % (int(amount[1]) + 1) + body[end:])
    new.replace(file)


@contextlib.contextmanager
def static_provider(
    folder: Path,
    *,
    etag: bool = False,
    delay: float = 0.0,
    count: bool = False,
    changing: bool = False,
    missing: int = 404,
) -> Iterator[Provider]:
    """Serve the files of `write_world`.

    With `etag`, send ETags and respond 304 to them. `delay` is the seconds before each response.
    With `count`, log the bytes of each body. With `changing`, cache no files. `missing` is the
    status for a wallet without a file (without delay).
    """
    port = free_port()
    log = folder / "bytes.log"
    log.unlink(missing_ok=True)
    nginx = shutil.which("nginx")
    if nginx and (not delay or ECHO_MODULE.exists()):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        config = folder / "nginx.conf"
        locations = AFTER_A_WHILE if delay else AT_ONCE
        config.write_text(
            NGINX.format(
                module=f"load_module {ECHO_MODULE};" if delay else "",
                user="user root;" if os.geteuid() == 0 else "",
                folder=folder,
                port=port,
                log=f"{log} bytes" if count else "off",
                etag="on" if etag else "off",
                files=files,
                cache="off" if changing else f"max={files // 2} inactive=600s",
                locations=locations.format(folder=folder, delay=delay, missing=missing),
            )
        )
        command, name = [nginx, "-c", str(config)], "nginx"
    else:
        options = [str(delay), "etag" if etag else "", str(log) if count else "", str(missing)]
        command = [sys.executable, "-m", "benchmarks.provider", str(folder / "www"), str(port)]
        command, name = command + options, "Python"
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield Provider(f"http://127.0.0.1:{port}", name, log)
    finally:
        process.terminate()
        process.wait()


def _serve(root: str, port: str, delay: str, etag: str, log: str, missing: str) -> None:
    with Double(port=int(port)) as provider:

        def answer(peer: Peer) -> bool:
            time.sleep(float(delay))
            file = Path(root, peer.seen.path.lstrip("/"))
            status, body, headers = 200, b"", {}
            try:
                body, about = file.read_bytes(), file.stat()
            except OSError:
                status = int(missing)
            else:
                if etag:
                    headers["etag"] = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
                    if peer.seen.headers.get("if-none-match") == headers["etag"]:
                        status, body = 304, b""
            if log:
                with Path(log).open("a") as sizes:
                    sizes.write(f"{len(body)}\n")
            provider.seen.clear()  # there may be millions
            send = reply(body, status, length=None, content_type="application/json", **headers)
            return send(peer)

        provider.always(answer)
        threading.Event().wait()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
