"""A world whose texts try to run scripts and to reach a server that nobody may reach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

from flask import Flask, Response, request
from seen_browser import answering

from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.store.wallets import WalletLine

#: What a script that runs says on the console, as the window's name and in a dialog.
RAN = "a-script-ran"

_CONTENT = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG"


class Canary(ThreadingHTTPServer):
    """A server on loopback that nothing should ask: scripts call it when they run."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Note)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.hits: list[str] = []


class _Note(BaseHTTPRequestHandler):
    server: Canary

    def do_GET(self) -> None:
        self.server.hits.append(self.path)
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def canary() -> Iterator[Canary]:
    """A canary for the length of a block."""
    canary = Canary()
    with answering(canary):
        yield canary


def script(canary_url: str) -> str:
    """JavaScript without quotes or angle brackets that makes itself known in four ways."""
    return (
        f"console.log(`{RAN}`);window.name=`{RAN}`;"
        f"new Image().src=`{canary_url}/ran`;alert(`{RAN}`)"
    )


def hostile_texts(canary_url: str) -> list[str]:
    """Names, labels and addresses, each an attack of another kind."""
    run = script(canary_url)
    return [
        # Short enough to be whole where names are cut.
        "<img src onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "<script>alert(1)</script>",
        "<a href='javascript:alert(1)'>gift</a>",
        "<a href='https://a.invalid'>gift</a>",
        "$\\href{javascript:alert(1)}{gift}$",
        f"<script>{run}</script>",
        f'"><img src=x onerror="{run}">',
        f"'><svg onload='{run}'>",
        f"</script><script>{run}</script>",
        f"</style></textarea></title></iframe>--><svg/onload='{run}'>",
        f'<iframe srcdoc="<script>{run}</script>"></iframe>',
        f'<iframe src="javascript:{run}"></iframe>',
        f'<a href="javascript:{run}">gift</a>',
        f"[gift](javascript:{run})",
        f'<meta http-equiv="refresh" content="0;url={canary_url}/meta">',
        f'<link rel="stylesheet" href="{canary_url}/link"><base href="{canary_url}/base/">',
        f"<style>@import url({canary_url}/style);body{{background:url({canary_url}/css)}}</style>",
        f'<img src="{canary_url}/img"><video src="{canary_url}/video" poster="{canary_url}/post">',
        f'<object data="{canary_url}/object"></object><embed src="{canary_url}/embed">',
        f'<form action="{canary_url}/form"><input autofocus onfocus="{run}"></form>',
        f"<details open ontoggle='{run}'>",
        f"<math><mtext></form><form><mglyph><style></math><img src onerror='{run}'>",
        "{{constructor.constructor('" + run + "')()}} ${" + run + "}",
        f"$\\href{{javascript:{run}}}{{gift}}$ \\(\\href{{javascript:{run}}}{{x}}\\)",
        f"$$\\style{{background:url({canary_url}/tex)}}{{x}}\\unicode{{x3c}}$$",
        "\u202egnp.exe\u202c \u2066\u2067 \u200b\u200b\ufeff \u0000\u0007\u001b[31m",
        "\u2028\u2029 ]]> %3Cscript%3E &lt;script&gt; \\u003cscript\\u003e",
        "A very long story. " * 5_264,
        "Z\u0351\u0352\u0353" * 200,
        "__proto__",
        "",
    ]


def hostile_addresses(url: str, canary_url: str) -> list[str]:
    """What metadata says that images are at."""
    run = script(canary_url)
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' onload='{run}'/>"
    return [
        f"{url}/art/scripted.svg",
        f"{url}/art/missing.png",
        f"{url}/art/page.html",
        f"javascript:{run}",
        f"java\tscript:{run}",
        f"data:text/html,<script>{run}</script>",
        f"data:image/svg+xml,{svg}",
        "file:///etc/passwd",
        "/etc/passwd",
        f"{canary_url}/image",
        f"//{canary_url.partition('//')[2]}/image",
        f"{url}@{canary_url.partition('//')[2]}/image",
        f"{url}\\@{canary_url.partition('//')[2]}/image",
        f"{canary_url}/image#{url}",
        f'{url}/art/scripted.svg" onerror="{run}',
        f"{url}/art/scripted.svg?'onload='{run}",
        f"{url}/art/../../../{'x' * 3000}",
        f"blob:{url}/1234",
        "view-source:chrome://settings",
        f"ipfs://{canary_url.partition('//')[2]}/image",
        "ipfs://../../image",
        f"ipfs://{_CONTENT}/image.svg",
    ]


def _id(number: int, kind: int) -> str:
    return str(UUID(int=(kind << 96) + number, version=4))


def _world_lines(url: str, canary_url: str) -> list[dict[str, object]]:
    """A wallet for each kind of field that attacks, and one whose NFTs only have attacked images.

    Every contract is held by two wallets, so that there is something to compare.
    """
    texts, addresses = hostile_texts(canary_url), hostile_addresses(url, canary_url)
    entries: list[dict[str, object]] = []
    for number, text in enumerate(texts):
        token_id = _id(number, 0xB)
        address = addresses[number % len(addresses)]
        metadata = {
            "name": text,
            "description": texts[number - 1],
            "image": f"{url}/sandbox/images/{token_id}.svg" if number % 3 else address,
            "animationUrl": address,
            "externalUrl": addresses[(number + 4) % len(addresses)],
            "backgroundColor": f"red;background:url({canary_url}/color)",
            "editionId": number,
            "totalEdition": 2**53 + 1,
            "creatorName": texts[number - 2],
            "creatorImageUrl": address,
            "creatorExternalPageUrl": addresses[(number + 4) % len(addresses)],
            text[:80] or "blank": text,
        }
        record = {
            "id": token_id,
            "organizationId": _id(0, 0xC),
            "contractAddress": texts[number % 11],
            "blockchainTokenId": text[:1000],
            "metadata": metadata,
            "note": text,
        }
        amount = text if number % 5 == 4 else str(2**256 - 1 - number)
        entries.append({"tokenId": token_id, "amount": amount, "token": record})
    for number, address in enumerate(addresses):
        token_id = _id(number, 0xD)
        metadata = {"name": f"Image {number}", "image": address, "creatorImageUrl": address}
        record = {"id": token_id, "contractAddress": address, "metadata": metadata}
        entries.append({"tokenId": token_id, "amount": "1", "token": record})
    wallets = hostile_wallets(canary_url)
    return [
        {"walletId": line.wallet_id, "nftTokenBalances": entries[place:] + entries[: place // 2]}
        for place, line in enumerate(wallets[:-1])
    ]


def hostile_wallets(canary_url: str) -> list[WalletLine]:
    """The wallets with labels and groups; the last one's read fails, with a text of its own."""
    texts = hostile_texts(canary_url)
    return [
        WalletLine(_id(number, 0xA), texts[number][:300], texts[number + 1][:300])
        for number in range(6)
    ]


@contextmanager
def hostile_provider(folder: Path, canary_url: str) -> Iterator[SandboxServer]:
    """A provider that serves a hostile world file, pictures at its own origin included."""
    failing = hostile_wallets(canary_url)[-1].wallet_id

    def build(url: str) -> World:
        file = folder / "hostile.jsonl"
        lines = _world_lines(url, canary_url)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return World.load(file)

    with SandboxServer(build) as provider:
        _serve_art(provider.app, failing, canary_url)
        yield provider


def _serve_art(app: Flask, failing: str, canary_url: str) -> None:
    run = script(canary_url)

    def scripted(**below: str) -> Response:
        return Response(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"'
            f' onload="{run}"><script>{run}</script><image href="{canary_url}/svg"/>'
            f'<foreignObject><iframe src="{canary_url}/frame"/></foreignObject>'
            '<rect width="9" height="9" fill="teal"/></svg>',
            mimetype="image/svg+xml",
        )

    def page() -> Response:
        return Response(f"<script>{run}</script>", mimetype="text/html")

    def unusable() -> Response | None:
        if failing not in request.path:
            return None
        return Response(
            json.dumps({"nftTokenBalances": [], "<img src onerror=alert(1)>": 1}),
            mimetype="application/json",
        )

    app.add_url_rule("/art/scripted.svg", "scripted", scripted)
    app.add_url_rule("/ipfs/<path:content>", "content", scripted)
    app.add_url_rule("/art/page.html", "page", page)
    app.before_request(unusable)
