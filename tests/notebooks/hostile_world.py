"""A world whose texts try to run scripts and to contact a forbidden server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from flask import Flask, Response, request

from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World

#: The text of a script on the console, as the window's name and in a dialog.
RAN = "a-script-ran"

#: A forbidden server that scripts contact if they run; the outgoing proxy records it.
TRAP = "http://trap.invalid"
_HOST = "trap.invalid"

_CONTENT = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG"


def script(path: str = "") -> str:
    """Return JavaScript without quotes or angle brackets that leaves four signs."""
    return (
        f"console.log(`{RAN}`);window.name=`{RAN}`;"
        f"new Image().src=`{TRAP}{path}/ran`;alert(`{RAN}`)"
    )


_RUN = script()


#: Names, labels and addresses, each a different attack.
TEXTS = [
    # Short enough not to be truncated.
    "<img src onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<script>alert(1)</script>",
    "<a href='javascript:alert(1)'>gift</a>",
    "<a href='https://a.invalid'>gift</a>",
    "$\\href{javascript:alert(1)}{gift}$",
    f"<script>{_RUN}</script>",
    f'"><img src=x onerror="{_RUN}">',
    f"'><svg onload='{_RUN}'>",
    f"</script><script>{_RUN}</script>",
    f"</style></textarea></title></iframe>--><svg/onload='{_RUN}'>",
    f'<iframe srcdoc="<script>{_RUN}</script>"></iframe>',
    f'<iframe src="javascript:{_RUN}"></iframe>',
    f'<a href="javascript:{_RUN}">gift</a>',
    f"[gift](javascript:{_RUN})",
    f'<meta http-equiv="refresh" content="0;url={TRAP}/meta">',
    f'<link rel="stylesheet" href="{TRAP}/link"><base href="{TRAP}/base/">',
    f"<style>@import url({TRAP}/style);body{{background:url({TRAP}/css)}}</style>",
    f'<img src="{TRAP}/img"><video src="{TRAP}/video" poster="{TRAP}/post">',
    f'<object data="{TRAP}/object"></object><embed src="{TRAP}/embed">',
    f'<form action="{TRAP}/form"><input autofocus onfocus="{_RUN}"></form>',
    f"<details open ontoggle='{_RUN}'>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror='{_RUN}'>",
    "{{constructor.constructor('" + _RUN + "')()}} ${" + _RUN + "}",
    f"$\\href{{javascript:{_RUN}}}{{gift}}$ \\(\\href{{javascript:{_RUN}}}{{x}}\\)",
    f"$$\\style{{background:url({TRAP}/tex)}}{{x}}\\unicode{{x3c}}$$",
    "\u202egnp.exe\u202c \u2066\u2067 \u200b\u200b\ufeff \u0000\u0007\u001b[31m",
    "\u2028\u2029 ]]> %3Cscript%3E &lt;script&gt; \\u003cscript\\u003e",
    "A very long story. " * 5_264,
    "Z\u0351\u0352\u0353" * 200,
    "__proto__",
    "",
]


def hostile_addresses(url: str) -> list[str]:
    """Return the addresses of images in metadata."""
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' onload='{_RUN}'/>"
    return [
        f"{url}/art/scripted.svg",
        f"{url}/art/missing.png",
        f"{url}/art/page.html",
        f"javascript:{_RUN}",
        f"java\tscript:{_RUN}",
        f"data:text/html,<script>{_RUN}</script>",
        f"data:image/svg+xml,{svg}",
        "file:///etc/passwd",
        "/etc/passwd",
        f"{TRAP}/image",
        f"//{_HOST}/image",
        f"{url}@{_HOST}/image",
        f"{url}\\@{_HOST}/image",
        f"{TRAP}/image#{url}",
        f'{url}/art/scripted.svg" onerror="{_RUN}',
        f"{url}/art/scripted.svg?'onload='{_RUN}",
        f"{url}/art/../../../{'x' * 3000}",
        f"blob:{url}/1234",
        "view-source:chrome://settings",
        f"ipfs://{_HOST}/image",
        "ipfs://../../image",
        f"ipfs://{_CONTENT}/image.svg",
    ]


def _id(number: int, kind: int) -> str:
    return str(UUID(int=(kind << 96) + number, version=4))


def _world_lines(url: str) -> list[dict[str, object]]:
    """Return a wallet for each kind of hostile field, and one with hostile images only.

    Every contract is held by two wallets, so that they overlap.
    """
    texts, addresses = TEXTS, hostile_addresses(url)
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
            "backgroundColor": f"red;background:url({TRAP}/color)",
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
    return [
        {"walletId": line.wallet_id, "nftTokenBalances": entries[place:] + entries[: place // 2]}
        for place, line in enumerate(HOSTILE_WALLETS[:-1])
    ]


class WalletLine(NamedTuple):
    """A line of a wallets file."""

    wallet_id: str
    label: str
    group: str


#: The wallets with labels and groups; the read of the last one fails with its own message.
HOSTILE_WALLETS = [
    WalletLine(_id(number, 0xA), TEXTS[number][:300], TEXTS[number + 1][:300])
    for number in range(6)
]


@contextmanager
def hostile_provider(folder: Path) -> Iterator[SandboxServer]:
    """A provider that serves a hostile world file, pictures at its own origin included."""

    def build(url: str) -> World:
        file = folder / "hostile.jsonl"
        lines = _world_lines(url)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return World.load(file)

    with SandboxServer(build) as provider:
        _serve_art(provider.app)
        yield provider


def _serve_art(app: Flask) -> None:

    def scripted(**below: str) -> Response:
        return Response(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"'
            f' onload="{_RUN}"><script>{_RUN}</script><image href="{TRAP}/svg"/>'
            f'<foreignObject><iframe src="{TRAP}/frame"/></foreignObject>'
            '<rect width="9" height="9" fill="teal"/></svg>',
            mimetype="image/svg+xml",
        )

    def page() -> Response:
        return Response(f"<script>{_RUN}</script>", mimetype="text/html")

    def unusable() -> Response | None:
        if HOSTILE_WALLETS[-1].wallet_id not in request.path:
            return None
        return Response(
            json.dumps({"nftTokenBalances": [], "<img src onerror=alert(1)>": 1}),
            mimetype="application/json",
        )

    app.add_url_rule("/art/scripted.svg", "scripted", scripted)
    app.add_url_rule("/ipfs/<path:content>", "content", scripted)
    app.add_url_rule("/art/page.html", "page", page)
    app.before_request(unusable)
