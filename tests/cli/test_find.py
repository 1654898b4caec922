"""`nftsync find`: what is called so, as a table or as JSON."""


def test_find_prints_what_is_called_so(site, command):
    command("wallets", "label", site.ids[0], "Treasury")
    (found,) = command("find", "treas", "--json").json
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
    table = command("find", "quite", "alone")
    assert token in table.out
    assert "\x1b" not in table.said
    nothing = command("find", "Tresury").tells(code=0)
    assert nothing.err == "Nothing is called 'Tresury'; near names: 'Treasury'\n"
    assert command("find", "Tresury", "--json").json == []
    assert command("find", " ").code == 2
