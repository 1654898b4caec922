"""Commands take a wallet's label where they take its id."""

from collections.abc import Callable

import pytest

import nftsync
from nftsync.errors import InputError
from nftsync.times import now
from tests.kit.mirrored_site import Site
from tests.kit.worlds import Outcome

Command = Callable[..., Outcome]


@pytest.fixture
def labelled(site: Site, command: Command) -> Site:
    for number, label in enumerate(["Treasury", "Desk", "desk"]):
        command("wallets", "label", site.ids[number], label)
    return site


def test_commands_that_read_find_it_by_its_label(labelled, command):
    wallet = labelled.ids[0]
    for words in (("holdings", "--json", "--wallet"), ("evidence", "--json", "--at", now())):
        by_id, by_label = (command(*words, each) for each in (wallet, "treasury"))
        assert by_id == by_label
        assert wallet in by_label.out
    checked = command("check", "Treasury", "--base-url", labelled.server.url)
    assert f"wallet {wallet} was read" in checked.out


def test_commands_that_write_find_it_by_its_label(labelled, command):
    assert command("wallets", "label", "Treasury", "Vault").code == 0
    assert command("wallets", "untrack", "Vault", "desk").code == 0
    rows = {row["wallet_id"]: row for row in command("wallets", "--json").json}
    assert rows[labelled.ids[0]]["label"] == "Vault"
    assert [rows[each]["tracked"] for each in labelled.ids] == [0, 1, 0, 1]


def test_a_sync_reads_the_wallet_that_is_called_so(labelled, command):
    url = labelled.server.url
    done = command("sync", "Treasury", labelled.ids[1], "--json", "--base-url", url)
    assert done.json["wallets"]["total"] == 2
    assert labelled.sync("Desk").wallets.total == 1
    new = labelled.database.with_name("new.db")
    with pytest.raises(InputError, match="neither a wallet id"):
        nftsync.sync("Treasury", base_url=url, database=new, progress=False)
    assert not new.exists()
