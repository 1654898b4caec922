"""Ask a node who holds the NFTs of an nftsync export, and write a list for `nftsync compare`.

    nftsync export books --format csv
    export ETH_RPC_URL=https://...          # or --rpc URL, which other users of the machine can see
    python3 ask_chain.py wallets.csv books > list.csv

wallets.csv has the columns `wallet` (an id or a label) and `address`. The script asks for each
token of the export at one block (--block NUMBER, latest, or finalized). If wallets share an
address, --together gives totals of all wallets. Tokens without an answer have the amount "unknown".
Exit codes: 0 complete, 1 with gaps or no list, 2 wrong usage.
"""

import argparse
import csv
import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

HEADERS = {"Content-Type": "application/json", "User-Agent": "ask_chain"}
SUPPORTS, OWNER_OF, BALANCE_OF = "0x01ffc9a7", "0x6352211e", "0x00fdd58e"
INTERFACES = [[int(name, 16) << 224] for name in ("80ac58cd", "d9b67a26", "ffffffff")]
TOKEN = re.compile("0x[0-9a-f]{1,40} ([0-9]{1,78}|0[xX][0-9a-fA-F]{1,64})")
REVERT = re.compile('(?!.*of ?gas).*("code": 3[,}]|revert|invalid (opcode|jump)|VM exec)', re.I)
MISSING = "does not exist (burned or never minted)"  # ownerOf reverts; nodes differ in the error


class Node:
    """A node at a block. Its URL may contain a key, so messages leave out all parts of the URL."""

    def __init__(self, url):
        self.url, self.block, self.failures = url, None, 0
        self.secrets = "|".join(re.findall(r"\w{6,}", url)) or "(?!)"

    def ask(self, name, *args):
        """Return the method's result, or the reason for none, for each params of one request."""
        rpc = [{"jsonrpc": "2.0", "id": n, "method": name, "params": p} for n, p in enumerate(args)]
        data, reply, results = json.dumps(rpc if len(rpc) > 1 else rpc[0]).encode(), None, {}
        for wait in (1, 2, 4, 0):
            try:
                with urlopen(Request(self.url, data, HEADERS), timeout=30) as response:
                    reply, reason, self.failures = json.load(response), "no result", 0
                break
            except (OSError, HTTPException, ValueError) as error:
                reason = getattr(error, "code", type(getattr(error, "reason", error)).__name__)
                self.failures += 1
                if self.failures == (12 if self.block else 4):
                    sys.exit(f"the node does not answer ({reason}); check its URL, and run again")
                time.sleep(0 if reason in range(400, 429) else wait)  # HTTP: the request is refused
        for one in reply if isinstance(reply, list) else [reply]:
            if isinstance(one, dict):
                error = re.sub(self.secrets, "***", json.dumps(one.get("error", reason)))
                results[str(one.get("id"))] = one.get("result") or error[:120]
        return [results.get(str(number), f"no answer: {reason}") for number in range(len(rpc))]

    def call(self, to, function, arguments):
        """Yield each answer as a number, or the reason for none; repeat failed calls alone."""
        data = [function + "".join(f"{word:064x}" for word in words) for words in arguments]
        calls = [[{"to": to, "data": text}, self.block] for text in data]
        for start in range(0, len(calls), 100):
            batch = calls[start : start + 100]
            for call, result in zip(batch, self.ask("eth_call", *batch), strict=True):
                answer = str(result if str(result)[:2] == "0x" else self.ask("eth_call", call)[0])
                yield int(answer, 16) if re.fullmatch("0x[0-9a-fA-F]{64}", answer) else answer

    def holders(self, contract, numbers, addresses):
        """Yield each token's amounts by address, or the reason why they are unknown."""
        to = f"0x{int(contract, 16):040x}"
        (code,) = self.ask("eth_getCode", [to, self.block])
        (first,) = self.call(to, BALANCE_OF, [[next(iter(addresses)), next(iter(numbers))]])
        is_721, is_1155, is_any = (answer == 1 for answer in self.call(to, SUPPORTS, INTERFACES))
        owners = [*self.call(to, OWNER_OF, [[x] for x in numbers if is_any or not is_1155])]
        if (owners and is_721 and not is_any) or any(isinstance(x, int) and x for x in owners):
            for owner in owners:
                is_missing = not owner or REVERT.match(str(owner))
                yield MISSING if is_missing else {owner: 1} if isinstance(owner, int) else owner
        elif owners and isinstance(first, str):
            yield from ["no code at this address" if code == "0x" else first] * len(numbers)
        else:
            for number in numbers:
                pairs = [[address, number] for address in addresses]
                amounts = dict(zip(addresses, self.call(to, BALANCE_OF, pairs), strict=True))
                yield next((x for x in amounts.values() if isinstance(x, str)), amounts)


def read_csv(path, *columns):
    """Return the cells of the columns in each row."""
    try:
        lines = re.split("(?<=\n)", path.read_text(encoding="utf-8-sig"))
        rows = csv.DictReader(lines, delimiter=max(",;\t", key=lines[0].count))
        return [[(row[column] or "").strip() for column in columns] for row in rows]
    except (OSError, ValueError, csv.Error, KeyError) as error:
        sys.exit(f"cannot read a CSV file with {' and '.join(columns)}: {error.args[-1]!r}")


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("wallets", type=Path, metavar="WALLETS.csv")
    parser.add_argument("export", type=lambda folder: Path(folder, "tokens.csv"), metavar="EXPORT")
    parser.add_argument("--rpc", default=os.environ.get("ETH_RPC_URL", ""), metavar="URL")
    parser.add_argument("--block", default="finalized")
    parser.add_argument("--together", action="store_true")
    options, others = parser.parse_known_args()
    if others or not options.rpc.startswith(("http://", "https://")):
        parser.error("set ETH_RPC_URL to the http or https URL of a node; see --help")
    csv.field_size_limit(2**31 - 1)
    wallets, tokens, notes, amounts = {}, defaultdict(dict), defaultdict(list), Counter()
    for wallet, address in read_csv(options.wallets, "wallet", "address"):
        if not wallet or not re.fullmatch("0x[0-9a-fA-F]{40}", address):
            sys.exit(f"the wallet {wallet!r} needs an address: 0x and 40 hex digits")
        other = wallets.setdefault(int(address, 16), "" if options.together else wallet)
        if other not in {"", wallet}:
            sys.exit(f"{other} and {wallet} share an address; see --together")
    for contract, text in read_csv(options.export, "contract", "blockchain_token_id"):
        if TOKEN.fullmatch(f"{contract} {text}"):
            tokens[contract][int(text, 16 if text[:2] in {"0x", "0X"} else 10)] = text
        else:
            notes["the export", "no address and id"].append(repr(f"{contract} {text}"[:80]))
    node = Node(options.rpc) if wallets and tokens else sys.exit("no wallets, or no tokens")
    tag = hex(int(options.block)) if options.block.isdecimal() else options.block
    (block,), (chain,) = node.ask("eth_getBlockByNumber", [tag, False]), node.ask("eth_chainId", [])
    if not {"number", "hash", "timestamp"} <= set(block) or str(chain)[:2] != "0x":
        sys.exit(f"the node has no such block: {block}; try --block latest")
    node.block = block["number"]
    for contract, texts in tokens.items():
        for text, held in zip(texts.values(), node.holders(contract, texts, wallets), strict=True):
            if isinstance(held, str):
                notes[contract, held].append(text)
                amounts["", contract, text] = 0 if held == MISSING else "unknown"
            for address in wallets.keys() & held:  # a reason has no addresses
                amounts[wallets[address], contract, text] += held[address]
        sys.stderr.write(f"{contract}\r" if sys.stderr.isatty() else "")
    if block["hash"] not in str(node.ask("eth_getBlockByNumber", [node.block, False])):
        sys.exit("the node now has another block of this number; run again, with --block finalized")
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(block["timestamp"], 16)))
    lines = [f"chain {int(chain, 16)}, block {int(node.block, 16)}, hash {block['hash']}, {at}"]
    lines += [f"{contract}: {why}: {', '.join(texts)}" for (contract, why), texts in notes.items()]
    sys.stdout.write("".join(f"# {line}\n" for line in lines))
    sys.stderr.write("".join(f"{line[:150]}{'…' * (len(line) > 150)}\n" for line in lines))
    rows = [["wallet", "contract", "blockchain_token_id", "amount", "as_of"]]
    rows += [[*key, amount, at] for key, amount in sorted(amounts.items()) if amount]
    out = csv.writer(sys.stdout, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    out.writerows(row[options.together :] for row in rows)
    sys.exit(any(why != MISSING for _, why in notes))
