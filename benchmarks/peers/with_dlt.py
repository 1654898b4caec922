"""dlt into indexed SQLite: tokens and balances, each merged on its primary key.

python with_dlt.py BASE_URL WALLETS_FILE DATABASE [uncompressed]

With `uncompressed`, by one who knows dlt's advice to leave its files on the way uncompressed.
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

Answer = tuple[str, list[dict[str, Any]]]

base, wallets_file, database, *uncompressed = sys.argv[1:]
if uncompressed:
    os.environ["DATA_WRITER__DISABLE_COMPRESSION"] = "true"
    os.environ["NORMALIZE__DATA_WRITER__DISABLE_COMPRESSION"] = "true"
client_of = threading.local()
#: Primary keys are made in the staging tables too, so that a token may come only once.
seen: set[str] = set()
MERGE: Any = {"disposition": "merge", "deduplicated": True}


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


@dlt.transformer(write_disposition=MERGE, primary_key="id")
def tokens(found: list[Answer]) -> list[dict[str, Any]]:
    listed = {entry["tokenId"]: entry["token"] for _, entries in found for entry in entries}
    fresh = [token for token_id, token in listed.items() if token_id not in seen]
    seen.update(listed)
    return fresh


@dlt.transformer(write_disposition=MERGE, primary_key=("wallet_id", "token_id"))
def balances(found: list[Answer]) -> list[dict[str, Any]]:
    return [
        {"wallet_id": wallet, "token_id": entry["tokenId"], "amount": entry["amount"]}
        for wallet, entries in found
        for entry in entries
    ]


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
