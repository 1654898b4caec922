"""A chain in memory with contracts of our own, and a node's JSON-RPC interface to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.kit.provider import Peer, Sender, reply

#: Numbers of contracts and holders are their addresses.
HEX = "0x{:040x}".format
SUPPORTS, OWNER_OF, BALANCE_OF = "0x01ffc9a7", "0x6352211e", "0x00fdd58e"
_CODES = {
    "eq": 0x14,
    "xor": 0x18,
    "shl": 0x1B,
    "shr": 0x1C,
    "calldataload": 0x35,
    "mstore": 0x52,
    "sload": 0x54,
    "jump": 0x56,
    "jumpi": 0x57,
    "dup1": 0x80,
    "return": 0xF3,
    "revert": 0xFD,
}
#: The owner of a token is in the slot of its number, the amount of ERC-1155 in `slot`.
_SUPPORTS = "4 calldataload 0xe0 shr {} eq @word jump"
_OWNER_OF = "4 calldataload sload dup1 @word jumpi 0 0 revert"
_BALANCE_OF = "4 calldataload 0x60 shl 0x24 calldataload xor sload @word jump"
ERC_721 = {SUPPORTS: _SUPPORTS.format("0x80ac58cd"), OWNER_OF: _OWNER_OF}
ERC_721_BEFORE_165 = {OWNER_OF: _OWNER_OF}
ERC_1155 = {SUPPORTS: _SUPPORTS.format("0xd9b67a26"), BALANCE_OF: _BALANCE_OF}


def slot(holder: int, token: int) -> int:
    return holder << 96 ^ token


def assemble(functions: Mapping[str, str]) -> bytes:
    """Return the code of a contract with these functions; it reverts all other calls."""
    cases = " ".join(f"dup1 {name} eq @{name} jumpi" for name in functions)
    bodies = " ".join(f":{name} {body}" for name, body in functions.items())
    source = f"0 calldataload 0xe0 shr {cases} 0 0 revert {bodies} :word 0 mstore 0x20 0 return"
    code, labels, jumps = bytearray(), {}, {}
    for word in source.split():
        if word[0] == ":":
            labels[word[1:]] = len(code)
            code.append(0x5B)
        elif word[0] == "@":
            code += b"\x60\0"
            jumps[len(code) - 1] = word[1:]
        elif word in _CODES:
            code.append(_CODES[word])
        else:
            value = bytes.fromhex(word.removeprefix("0x").zfill(2))
            code += bytes([0x5F + len(value)]) + value
    for place, label in jumps.items():
        code[place] = labels[label]
    return bytes(code)


class Reverted(Exception):
    """A call that a contract refuses."""


def chain(contracts: Mapping[int, tuple[Mapping[str, str], Mapping[int, int]]]) -> Any:
    """Return the methods of a node on a chain with these functions and storages, at block 1."""
    from eth_tester import EthereumTester, PyEVMBackend
    from eth_tester.exceptions import TransactionFailed

    empty: dict[str, Any] = {"balance": 10**24, "nonce": 0, "code": b"", "storage": {}}
    state = {(1).to_bytes(20): empty} | {
        address.to_bytes(20): empty | {"code": assemble(functions), "storage": dict(storage)}
        for address, (functions, storage) in contracts.items()
    }
    tester = EthereumTester(PyEVMBackend(genesis_state=state))
    tester.mine_block()

    def at(block: str) -> int | str:
        return int(block, 16) if block.startswith("0x") else block

    def answer(method: str, params: list[Any]) -> Any:
        if method == "eth_chainId":
            return "0x539"
        if method == "eth_getBlockByNumber":
            block = tester.get_block_by_number(at(params[0]))
            return {name: hex(block[name]) for name in ("number", "timestamp")} | {
                "hash": block["hash"]
            }
        if method == "eth_getCode":
            return tester.get_code(params[0], at(params[1]))
        try:
            return tester.call({"from": HEX(1), **params[0]}, at(params[1]))
        except TransactionFailed:
            raise Reverted from None

    return answer


def serve(
    answer: Callable[[str, list[Any]], Any], spoil: Callable[[Any], Any] = lambda replies: replies
) -> Sender:
    """Serve a node's methods, alone or in batches; `spoil` changes the replies to a request."""

    def one(call: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"id": call["id"], "result": answer(call["method"], call["params"])}
        except Reverted:
            return {"id": call["id"], "error": {"code": 3, "message": "execution reverted"}}

    def send(peer: Peer) -> bool:
        body = json.loads(peer.seen.body)
        replies = [one(call) for call in body] if isinstance(body, list) else one(body)
        return reply(json.dumps(spoil(replies)).encode())(peer)

    return send
