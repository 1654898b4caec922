"""dlt into indexed SQLite: tokens and balances, each merged on its primary key.

python with_dlt.py BASE_URL WALLETS_FILE DATABASE [uncompressed | fastest]

`uncompressed` leaves intermediate files uncompressed, as dlt advises. `fastest` also passes Arrow
tables, which dlt loads as Parquet without normalizing them row by row. Its ADBC loader does not
support SQLite.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["EXTRACT__WORKERS"] = "8"  # requests at once

import dlt
import httpx
import pyarrow as pa

Answer = tuple[str, list[dict[str, Any]]]
Rows = list[dict[str, Any]]

base, wallets_file, database, *way = sys.argv[1:]
fastest = way == ["fastest"]
if way:
    os.environ["DATA_WRITER__DISABLE_COMPRESSION"] = "true"
    os.environ["NORMALIZE__DATA_WRITER__DISABLE_COMPRESSION"] = "true"
client_of = threading.local()
#: Primary keys are made in the staging tables too, so that a token may come only once.
seen: set[str] = set()
MERGE: Any = {"disposition": "merge", "deduplicated": True}
FORMAT: Any = "parquet" if fastest else None
TEXTS = ["id", "organization_id", "contract_address", "blockchain_token_id"]
METADATA = ["name", "description", "image", "animation_url", "external_url", "background_color"]
METADATA += ["creator_name", "creator_image_url", "creator_external_page_url"]
NUMBERS = ["edition_id", "total_edition"]


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def as_table(found: Rows) -> Any:
    """Tokens as dlt's default would normalize them, in one Arrow table."""
    shown = [token.get("metadata", {}) for token in found]
    columns = {name: [token.get(camel(name)) for token in found] for name in TEXTS}
    columns |= {f"metadata__{name}": [m.get(camel(name)) for m in shown] for name in METADATA}
    arrays = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    for name in NUMBERS:
        arrays[f"metadata__{name}"] = pa.array([m.get(camel(name)) for m in shown], pa.int64())
    return pa.table(arrays)


@dlt.resource
def pages() -> Iterator[list[str]]:
    ids = Path(wallets_file).read_text().split()
    for start in range(0, len(ids), 50):
        yield ids[start : start + 50]


@dlt.transformer(parallelized=True)
def answers(ids: list[str]) -> list[Answer]:
    if not hasattr(client_of, "this_thread"):
        client_of.this_thread = httpx.Client(base_url=base)
    found = []
    for wallet in ids:
        answer = client_of.this_thread.get(f"/v1/wallets/{wallet}/nft-balances")
        answer.raise_for_status()
        found.append((wallet, answer.json()["nftTokenBalances"]))
    return found


@dlt.transformer(write_disposition=MERGE, primary_key="id", file_format=FORMAT)
def tokens(found: list[Answer]) -> Any:
    listed = {entry["tokenId"]: entry["token"] for _, entries in found for entry in entries}
    fresh = [token for token_id, token in listed.items() if token_id not in seen]
    seen.update(listed)
    return as_table(fresh) if fastest else fresh


@dlt.transformer(write_disposition=MERGE, primary_key=("wallet_id", "token_id"), file_format=FORMAT)
def balances(found: list[Answer]) -> Any:
    rows = [
        {"wallet_id": wallet, "token_id": entry["tokenId"], "amount": entry["amount"]}
        for wallet, entries in found
        for entry in entries
    ]
    return pa.Table.from_pylist(rows) if fastest else rows


@dlt.source
def provider() -> Any:
    read = pages | answers
    return read | tokens, read | balances


with tempfile.TemporaryDirectory() as folder:
    began = time.perf_counter()
    pipeline = dlt.pipeline(
        pipeline_name="wallets",
        pipelines_dir=folder,
        destination=dlt.destinations.sqlalchemy(
            f"sqlite:///{database}", create_primary_keys=True, create_unique_indexes=True
        ),
        dataset_name="main",
    )
    pipeline.run(provider()).raise_on_failed_jobs()
    seconds = time.perf_counter() - began
    with pipeline.sql_client() as client:
        counts = dict(client.execute_sql("SELECT 'balances', count(*) FROM balances"))
print(json.dumps({"seconds": seconds, **counts}))
