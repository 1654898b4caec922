r"""Requests whose length or end a parser could read in another way, and their right outcome.

The kinds come from public collections of malformed requests (RFC 9112, sections 2, 5, 6 and 7).
`|` is CRLF.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

#: `good`: 200, and the connection stays. `last`: answered, and the connection ends. `refused`: 400,
#: and the connection ends.
Outcome: TypeAlias = Literal["good", "last", "refused"]


def requests(host: str, path: str, signature: str, body: str) -> Iterator[tuple[Outcome, bytes]]:
    """Yield signed requests, each with its outcome."""
    for outcome, rows in _table(host, path, signature, body).items():
        for row in rows:
            yield outcome, row.replace("|", "\r\n").encode("latin-1")


def _table(host: str, path: str, signature: str, b: str) -> dict[Outcome, list[str]]:
    n, h = str(len(b)), f"{len(b):x}"
    fields = f"Host: {host}|{signature}"
    p, p10 = (f"POST {path} HTTP/1.{minor}|{fields}" for minor in (1, 0))
    keep = "Connection: keep-alive"
    cl, te = f"Content-Length: {n}", "Transfer-Encoding: chunked"
    c = f"{h}|{b}|0||"
    codings = (
        *(" chunked, chunked", " chunked,", " ,chunked", "", " xchunked", " chunkedx", " identity"),
        *(" chunked;q=1", ' "chunked"', " gzip, chunked", " chunked, gzip", " identity, chunked"),
        *(" \x0bchunked", " \x0cchunked", " chunked\x0b", " \xa0chunked", " chunked\x85", " cow"),
        *(" chunked\x00", "\x00chunked", " chun ked", " chunked\x1f", "| chunked", "|\tchunked"),
        *(" chunked| , identity", "\n chunked", " chunked\r"),
    )
    lengths = (
        *(f"+{n}", f"-{n}", f"{n} {n}", "", f"0x{n}", f"{n}_0", f"{n}, {n}", f"{n},", f"{n}.0"),
        *(f"1e{n}", "\xb2", f"{n};", f"\x0b{n}", f"{n}\x00", f"| {n}", f"{n}| 0", f"\n {n}"),
    )
    chunks = (
        *(f"{h} |{b}|", f" {h}|{b}|", f"\t{h}|{b}|", f"{h}\t|{b}|", f"0x{h}|{b}|", f"+{h}|{b}|"),
        *(f"-{h}|{b}|", f"0_{h}|{b}|", f"{h}\n|{b}|", f"{h}\n{b}|", f"{h};a\n|{b}|", f"x|{b}|"),
        *(f"{h};a\nb|{b}|", f"{h};a=\x00|{b}|", f"{h}; a|{b}|", f'{h};"a|{b}|', f"{h}|{b}x|"),
        *(f"{h}|{b}", f"{h}|{b}\n", f"{h}|{b}\r", f"1|{b}|", f"{h},{h}|{b}|", f"{h}\x00|{b}|"),
    )
    return {
        "good": [
            *(f"{p}|{cl}||{b}", f"{p}|Content-Length:\t{n} \t||{b}", f"||{p}|{cl}||{b}"),
            *(f"{p}|content-length: 00{n}||{b}", f"{p}|X-Content-Length: 7|{cl}|X-TE: x||{b}"),
            *(f"{p}|{te}||{c}", f"{p}|transfer-encoding:CHUNKED||{c}", f"{p}|X: {te}|{cl}||{b}"),
            f'{p}|{te}||{h};a="x y;z"|{b}|0||',
            f"{p}|{te}||1;a=b|{b[0]}|000{len(b) - 1:x}|{b[1:]}|00|X-Trailer: y||",
        ],
        "last": [
            *(f"{p10}|{keep}|{cl}||{b}", f"{p10}|{cl}||{b}", f"{p10}|{keep}|{te}||{c}"),
            *(
                f"POST {path}{version}|{fields}|{keep}|{length}"
                for version in (" HTTP/2.0", " HTTP/0.9", " HTTP/1.2", " HTTP/3.0", "")
                for length in (f"{cl}||{b}", f"{te}||{c}")
            ),
        ],
        "refused": [
            # Two lengths, or a second one that only some parsers see.
            *(f"{p}|{cl}|{te}||{x}" for x in (b, c)),
            *(f"{p}|{x}||{c}" for x in (f"{te}|{cl}", f"{te}|X: y|Content-Length: 0")),
            *(f"{p}|{cl}|{x}||{b}" for x in (cl, "Content-Length: 5", "content_length: 5")),
            *(f"{p}|{x}||{b}" for x in (f"{cl}|Transfer_Encoding: chunked", "Content_Length: 5")),
            *(f"{p}|Expect: 100-continue|{cl}|{te}||{c}", f"{p10}|{keep}|{te}|{cl}||{b}"),
            # Repeated, several, unknown and oddly written codings and lengths; folded lines.
            f"{p}|{te}|{te}||{c}",
            *(f"{p}|Transfer-Encoding:{coding}||{c}" for coding in codings),
            *(f"{p}|Transfer-Encoding:{coding}|{cl}||{b}" for coding in codings),
            *(f"{p}|Content-Length: {length}||{b}" for length in lengths),
            # Names that are none, or hidden behind other ends of lines.
            *(
                f"{p}|{x}{te}||{c}"
                for x in (" ", "\t", "\x00", "\x0b", "X: y\n", "X: y\r", "X: y| ")
            ),
            *(
                f"{p}|{x}{cl}||{b}"
                for x in (" ", "\t", "\x00", "\x0b", "X: y\n", "X: y\r", "X: y| ")
            ),
            *(f"{p}|Transfer-Encoding{x}: chunked||{c}" for x in (" ", "\t", "\x00", "\n", "=")),
            *(f"{p}|Content-Length{x}: {n}||{b}" for x in (" ", "\t", "\x00", "\n", "=")),
            *(f"{p}|{x}|{cl}||{b}" for x in ("Bad Name: x", ": x", "No-Colon", "X: \x00")),
            # Chunks with an odd size, extension or end.
            *(f"{p}|{te}||{x}0||" for x in chunks),
            # Other ends of lines, and request lines that are none.
            *(f"{p}|{cl}||{b}".replace("|", "\n"), f"{p}|{cl}||{b}".replace("|", "\n", 1)),
            *(
                f"{line}|{fields}|{cl}||{b}"
                for line in (
                    *(f"POST {path} http/1.1", f"POST {path} HTTP/1", f"POST {path} HTTP/1.10"),
                    *(f"POST {path} HTTP/11", f"POST {path} HTTP /1.1", f"POST  {path} HTTP/1.1"),
                    *(f"POST {path}  HTTP/1.1", f"POST\t{path} HTTP/1.1", f"post {path} HTTP/1.1"),
                    *(f"POST {path} HTTP/1.1 x", "POST", f"P\x00ST {path} HTTP/1.1"),
                )
            ),
        ],
    }
