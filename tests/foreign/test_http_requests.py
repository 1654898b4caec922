"""gunicorn's valid and invalid requests, sent to `nftsync serve` as signed webhooks."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path

from tests.foreign.suites import read_suite
from tests.kit.serve_process import query, serving, signed, webhook
from tests.kit.worlds import PATIENCE

#: Invalid requests that `serve` answers, by the reason.
ANSWERED = {
    "a limit of gunicorn's settings": ("006", "009", "010", "011", "012", "013"),
    "a header that nftsync does not read": ("019", "041"),
    "RFC 9112 lets a server unfold a field": ("obs_fold_01",),
    "read as HTTP/1.0, and the connection ends": ("version_02",),
    "empty lines before a request are skipped": ("rfc9112_leading_crlf_02",),
    "trailers are discarded": (
        "rfc9112_chunked_missing_final_crlf_01",
        *(f"rfc9110_trailer_forbidden_{name}_01" for name in ("cl", "host", "te")),
    ),
    "another path than /webhooks": (
        "002",
        "rfc9112_target_asterisk_non_options_01",
        "rfc9112_target_authority_non_connect_01",
        "rfc9112_target_nul_01",
        "rfc9112_target_relative_01",
    ),
}
#: Valid requests that `serve` refuses, by the reason.
REFUSED = {
    "headers of more than 8 KiB": ("024", "026", "099"),
    "another transfer coding than chunked": (
        *("025", "025_line", "029", "030"),
        "rfc9112_smuggle_gzip_chunked_01",
        "rfc9112_smuggle_te_identity_chunked_01",
    ),
    "spaces in the extension of a chunk": ("013",),
    "valid only with gunicorn's settings": (
        *("028", "031compat", "031compat2", "040", "040_compat"),
        *("pp_01", "pp_02", "pp_04", "pp_05"),
    ),
}


def names(groups: dict[str, tuple[str, ...]]) -> set[str]:
    return {name for group in groups.values() for name in group}


def unescaped(file: bytes) -> bytes:
    r"""Read a file of the suite: `\r\n` is written out, and line ends mean nothing."""
    return re.sub(
        rb"\\(?:x(..)|(.))",
        lambda escape: bytes.fromhex(escape[1].decode()) if escape[1] else ESCAPES[escape[2]],
        file.replace(b"\n", b""),
    )


ESCAPES = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0"}
_CHUNK = re.compile(rb"\b0*[1-9a-fA-F][0-9a-fA-F]*(?:;[^\r\n]*)?\r\n([^\r\n]+)")


def as_webhook(request: bytes) -> bytes:
    """Turn a request into a signed POST to the webhook path, as far as it remains itself."""
    blank, line, rest = re.fullmatch(rb"((?:\r\n)*)([^\r]*)(.*)", request, re.DOTALL).groups()
    line = re.sub(rb"GET|PUT", b"POST", line, count=1)
    line = re.sub(rb"(?<= )/[\w./?=&#-]*(?=[ \0\x80-\xff])", b"/webhooks", line, count=1)
    head, _, body = rest.partition(b"\r\n\r\n")
    if b"chunked" in head:
        body = b"".join(_CHUNK.findall(body))
    else:
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        body = body[: int(length[1])] if length else b""
    ((name, signature), _) = signed(body).items()
    fields = f"\r\n{name}: {signature}" + ("" if b"\nHost:" in head else "\r\nHost: x")
    return blank + line + fields.encode() + rest


def statuses(port: int, content: bytes) -> list[int]:
    """Return the statuses of all replies; fail if the connection does not end."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as link:
        with suppress(OSError):  # the server stops reading a refused request
            link.sendall(content)
            link.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while data := link.recv(65_536):
                got += data
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([0-9]{3})", got)]


def test_no_invalid_request_is_stored_and_none_hides_another(tmp_path: Path) -> None:
    suite = read_suite("gunicorn_requests")
    answered: dict[str, set[str]] = {"valid": set(), "invalid": set()}
    refused: dict[str, set[str]] = {"valid": set(), "invalid": set()}
    with serving(tmp_path, "http://127.0.0.1:9") as server:
        port = int(server.base.rpartition(":")[2])
        for path, file in suite.items():
            query(tmp_path / "nftsync.db", "DELETE FROM webhooks")
            body = webhook("Payment", "00000000-0000-4000-8000-00000000000b")
            fields = signed(body) | {"Host": "x", "Connection": "close"}
            fields |= {"Content-Length": str(len(body))}
            lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            following = f"POST /webhooks HTTP/1.1\r\n{lines}\r\n".encode() + body
            replies = statuses(port, as_webhook(unescaped(file)) + following)
            kind, _, name = path.removesuffix(".http").partition("/")
            if replies in ([], [400], [431]):
                refused[kind].add(name)
            else:
                assert replies[0] in {200, 404, 405}, (path, replies)
                answered[kind].add(name)
            stored = query(tmp_path / "nftsync.db", "SELECT count(*) FROM webhooks")
            assert stored == [(replies.count(200),)], (path, replies)
        assert server.get("/readyz") == 200
        assert server.stop() == 0
    assert answered["invalid"] == names(ANSWERED)
    assert refused["valid"] == names(REFUSED)
    assert {kind: len(refused[kind] | answered[kind]) for kind in refused} == {
        "valid": 62,
        "invalid": 81,
    }
