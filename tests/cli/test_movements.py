"""The commands `transfers` and `statement`, after a transfer at the provider."""

from __future__ import annotations

from nftsync.times import now

ENTRIES = ("opening", "initial", "received", "sent", "closing")


def test_transfers_name_both_wallets_and_a_statement_adds_up(site, command):
    sender, receiver = site.ids[:2]
    token = site.held(sender)[0]
    command("wallets", "label", sender, "Treasury")
    start = now()
    site.world.transfer(sender, receiver, token, 1)
    site.sync()
    (transfer,) = command("transfers", "--since", start, "--json").json
    assert (transfer["kind"], transfer["amount"]) == ("transfer", "1")
    assert (transfer["from_wallet_id"], transfer["from_label"]) == (sender, "Treasury")
    assert transfer["to_wallet_id"] == receiver
    assert transfer["observed_after"] < transfer["observed_at"]
    table = command("transfers", "--wallet", "Treasury").out
    assert "Treasury" in table
    assert receiver in table
    assert "No transfers." in command("transfers", "--until", start).err
    for by in ("group", "wallet", "collection"):
        *rows, total = command("statement", "--from", start, "--by", by, "--json").json
        for unit, kind in (("", int), ("_amount", str)):
            names = [f"{name}{unit}" for name in ENTRIES]
            assert all(isinstance(row[name], kind) for row in rows for name in names)
            opening, *_, received, sent, closing = (int(total[name]) for name in names)
            assert opening + received - sent == closing == sum(int(row[names[-1]]) for row in rows)
        assert (total["received_amount"], total["sent_amount"]) == ("1", "1")
    done = command("statement", "--from", start, "--by", "wallet", "--limit", "1")
    assert "total" in done.out
    assert f"1 of {len(site.ids)} rows." in done.err
    assert "--from" in command("statement").err
    assert "future" in command("statement", "--from", "2999-01-01").err
