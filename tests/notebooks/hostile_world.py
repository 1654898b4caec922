"""A world whose texts try to run scripts and to contact a forbidden server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kit.provider import Provider, entry, reply, token, uuid, wallet

#: The text of a script on the console, as the window's name and in a dialog.
RAN = "a-script-ran"

#: A forbidden server that scripts contact if they run; the outgoing proxy records it.
TRAP = "http://trap.invalid"
_HOST = "trap.invalid"

CID = "QmYwAPJzv5CZsnA625s1Xf2nemtYgPpHdWEz79ojWKPbdG"


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
        f"ipfs://{CID}/image.svg",
    ]


def _entries(url: str) -> list[dict[str, Any]]:
    """Return balances with hostile fields, and balances with hostile images only."""
    texts, addresses = TEXTS, hostile_addresses(url)
    entries = []
    for number, text in enumerate(texts):
        address = addresses[number % len(addresses)]
        metadata = {
            "name": text,
            "description": texts[number - 1],
            "image": f"{url}/art/scripted.svg?{number}" if number % 3 else address,
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
            "organizationId": uuid(0, 0xC),
            "contractAddress": texts[number % 11],
            "blockchainTokenId": text[:1000],
            "metadata": metadata,
            "note": text,
        }
        amount = text if number % 5 == 4 else str(2**256 - 1 - number)
        entries.append(entry(token(number), amount, **record))
    for number, address in enumerate(addresses):
        metadata = {"name": f"Image {number}", "image": address, "creatorImageUrl": address}
        record = {"contractAddress": address, "metadata": metadata}
        entries.append(entry(uuid(number, 0xD), **record))
    return entries


#: Ids, labels and groups of wallets; the read of the last one fails with its own message.
HOSTILE_WALLETS = [
    (wallet(number), TEXTS[number][:300], TEXTS[number + 1][:300]) for number in range(6)
]


@contextmanager
def hostile_provider() -> Iterator[Provider]:
    """A provider of hostile wallets that overlap, and of pictures at its own origin."""
    picture = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"'
        f' onload="{_RUN}"><script>{_RUN}</script><image href="{TRAP}/svg"/>'
        f'<foreignObject><iframe src="{TRAP}/frame"/></foreignObject>'
        '<rect width="9" height="9" fill="teal"/></svg>'
    )
    with Provider() as provider:
        entries = _entries(provider.url)
        for place, (wallet_id, *_) in enumerate(HOSTILE_WALLETS[:-1]):
            provider.holds(wallet_id, *entries[place:], *entries[: place // 2])
        provider.holds(HOSTILE_WALLETS[-1][0], **{"<img src onerror=alert(1)>": 1})
        for path in ("/art/scripted.svg", f"/ipfs/{CID}/image.svg"):
            provider.on(path, reply(picture.encode(), content_type="image/svg+xml"))
        page = f"<script>{_RUN}</script>".encode()
        provider.on("/art/page.html", reply(page, content_type="text/html"))
        yield provider
