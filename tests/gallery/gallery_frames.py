"""Frames of NFTs, plain and hostile."""

import gzip
import json
import re
from base64 import b64decode
from itertools import cycle
from typing import Any

import pandas as pd

from tests.kit.provider import token, wallet
from tests.notebooks.hostile_world import TEXTS, hostile_addresses

#: The effects of a script that runs; each is visible from outside.
RUN = "window.ran=1;console.log('ran');alert('ran')"

HOSTILE_TEXTS = [
    f"<script>{RUN}</script>",
    *filter(None, TEXTS),
    "nul \x00 bell \x07 escape \x1b[31m half \ud83d half",
    "x" * 100_000,
    "حساب التخزين البارد",
]


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a frame of object columns, which can have any text, also lone surrogates."""
    numbered = [{"token_id": token(number), **row} for number, row in enumerate(rows)]
    return pd.DataFrame(numbered, dtype=object)


def hostile() -> pd.DataFrame:
    """Return a row for each text, in all columns of text, and with one of the images."""
    columns = (
        *("name", "creator_name", "collection", "contract_address", "blockchain_token_id"),
        *("wallet_label", "wallet_id", "description", "amount_text", "edition_id", "held_since"),
    )
    images = cycle(hostile_addresses("https://images.invalid"))
    return frame(
        [
            {**dict.fromkeys((*columns, "token_id"), text), "image": image}
            for text, image in zip(HOSTILE_TEXTS, images, strict=False)
        ]
    )


def many(count: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "token_id": [token(number) for number in range(count)],
            "name": [f"Piece {number}" for number in range(count)],
            "amount": pd.Series([number + 1 for number in range(count)], dtype=object),
            "contract_address": [f"0x{number % 7:040x}" for number in range(count)],
            "wallet_id": [wallet(number % 50) for number in range(count)],
        }
    )


def data_of(html: str) -> Any:
    (data,) = re.findall(r'<script type="application/gzip" id="data">(.*?)</script>', html)
    return json.loads(gzip.decompress(b64decode(data)))


def column(gallery: Any, name: str) -> list[str | None] | None:
    """Return the values of a column of a gallery's cards, None without the column."""
    values = data_of(gallery.html)["columns"].get(name)
    return None if values is None else [values["of"][at] for at in values["at"]]
