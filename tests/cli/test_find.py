"""`nftsync find`: what is called so, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.mirrored_site import Site
from tests.kit.worlds import Outcome


def test_find_prints_what_is_called_so(site: Site, command: Callable[..., Outcome]) -> None:
    where = ("-d", site.database)
    command("wallets", "label", site.ids[0], "Treasury", *where)
    (found,) = command("find", "treas", "--json", *where).json
    assert found == {
        "kind": "wallet",
        "name": "Treasury",
        "id": site.ids[0],
        "collection": None,
        "holders": None,
        "tokens": 5,
    }
    token = site.held(site.ids[0])[0]
    site.world.edit_metadata(token, {"name": "Quite\x1b[2J Alone"})
    site.sync()
    table = command("find", "quite", "alone", *where)
    assert token in table.out
    assert "\x1b" not in table.said
    nothing = command("find", "Tresury", *where)
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "Nothing is called 'Tresury'; near names: 'Treasury'\n"
    assert command("find", "Tresury", "--json", *where).json == []
    assert command("find", " ", *where).code == 2
