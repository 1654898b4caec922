"""Contract addresses: which texts name the same contract."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.frames._columns import coded
from nftsync.frames._source import Numbers

__all__ = ["contract_groups", "contract_key", "is_hex_address", "names_contract"]

_HEX_PATTERN = "0[xX][0-9a-fA-F]{40}"
_HEX_ADDRESS = re.compile(_HEX_PATTERN)


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


def contract_groups(addresses: pa.Array) -> tuple[Numbers, pa.Array]:
    """Number the contracts that a column of addresses names, in the order they come.

    Addresses of `0x` and 40 hex digits are one contract whatever their case.

    Args:
        addresses: text, null where a token has no contract.

    Returns:
        The number of each row's contract, and by number how each was spelled first. The last
        number, spelled null, is that of the rows without a contract, even if there are none.
    """
    codes, distinct = coded(addresses)
    # Each spelling as `contract_key` has it, a million of them at once.
    is_hex = pc.match_substring_regex(distinct, f"^{_HEX_PATTERN}$")
    number_of, keys = coded(pc.if_else(is_hex, pc.ascii_lower(distinct), distinct))
    first = np.searchsorted(np.maximum.accumulate(number_of), np.arange(len(keys)))
    numbers = np.append(number_of, len(keys)).astype(np.int64)[codes]
    return numbers, pa.concat_arrays([distinct.take(pa.array(first)), pa.nulls(1, distinct.type)])
