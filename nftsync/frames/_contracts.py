"""Contract addresses: which texts name the same contract."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nftsync.frames._columns import coded

__all__ = ["contract_key", "is_hex_address", "names_contract"]

_HEX_ADDRESS = re.compile(r"0x[0-9a-f]{40}", re.ASCII | re.IGNORECASE)


def is_hex_address(address: str) -> bool:
    """Whether it is `0x` and 40 hex digits, whose case only carries a checksum."""
    return _HEX_ADDRESS.fullmatch(address) is not None


def contract_key(address: str) -> str:
    """The text that all spellings of one contract's address have in common."""
    return address.lower() if is_hex_address(address) else address


def names_contract(addresses: pa.Array, contract: str) -> npt.NDArray[np.bool_]:
    """Tell which addresses of a column name the given contract."""
    codes, distinct = coded(addresses)
    key = contract_key(contract)
    same = [*(contract_key(address) == key for address in distinct.to_pylist()), False]
    return np.array(same)[codes]
