"""What collections are called, as commands show and set it."""

import pandas as pd

from nftsync import frames


def test_the_list_is_that_of_the_frame(site, command):
    listed = command("collections", "--json").json
    known = frames.collections(site.database)
    names = ["contract", "contract_address", "name_source", "tokens", "held", "holders"]
    expected = known[names].astype(object).where(known[names].notna(), None).to_dict("records")
    assert [{name: row[name] for name in names} for row in listed] == expected
    assert {row["name"] for row in listed if row["name_source"] is None} <= {None}
    done = command("collections")
    assert done.code == 0
    unnamed = sum(row["name"] is None for row in listed)
    assert f"Without a name: {unnamed} of {len(listed)} collections." in done.err
    assert "nftsync collections label ADDRESS NAME" in done.err
    assert all(row["contract"] in done.out for row in listed)
    address = known["contract_address"][0]
    wrong = address[:-1] + ("0" if address[-1] != "0" else "1")
    command("collections", "label", wrong, "Cats").tells(address)


def test_a_label_shows_everywhere_until_it_is_taken_away(site, command, tmp_path):
    """A contract is named by its address in any case, or by its name."""
    before = frames.collections(site.database)
    address = before["contract_address"][0]
    spelled = f"0x{address[2:].upper()}"
    assert command("collections", "label", spelled, " Salt Harbours ").code == 0
    (row, *_) = command("collections", "--json").json
    assert (row["name"], row["name_source"]) == ("Salt Harbours", "given")
    for words in ("collections", "holdings"):
        assert "Salt Harbours" in command(words).out
    chosen = ("holdings", "--contract", "salt harbours", "--json")
    rows = command(*chosen).json
    assert {each["contract"] for each in rows} == {address.lower()}
    assert {each["collection"] for each in rows} == {"Salt Harbours"}
    assert command("export", tmp_path / "out").code == 0
    exported = pd.read_parquet(tmp_path / "out" / "holdings.parquet")
    rows = exported[exported["contract"] == address.lower()]
    assert set(rows["collection"]) == {"Salt Harbours"}
    command("holdings", "--contract", "Salt Harbour").tells("similar: 'Salt Harbours'")
    for named, name in (("salt harbours", "Harbours"), ("Harbours", "")):
        assert command("collections", "label", named, name) == (0, "", "")
        rows = command("collections", "--json").json
        given = [row["name"] for row in rows if row["name_source"] == "given"]
        assert given == ([name] if name else [])
    unknown = "unknown collection or contract 'Salt Harbours'"
    command("collections", "label", "Salt Harbours", "Harbours").says(unknown, code=2)
    pd.testing.assert_frame_equal(frames.collections(site.database), before)


def test_a_sync_reads_the_collections_file(site, tmp_path):
    known = frames.collections(site.database)
    first, second = known["contract_address"][:2]
    config = tmp_path / "ours.toml"
    config.write_text('collections_file = "names.csv"\n')

    def named() -> dict[str, str]:
        found = frames.collections(site.database)
        of_file = found[found["name_source"] == "file"]
        return dict(zip(of_file["contract_address"], of_file["collection"], strict=True))

    for address, mark, name in (
        (first, ";", "Salt Harbours"),
        (second, ",", "Night Trams"),
    ):
        text = f"contract_address{mark}name\n{address.upper()}{mark}{name}\n"
        (tmp_path / "names.csv").write_text(text)
        site.sync(config=config)
        assert named() == {address: name}
    site.sync()
    assert named() == {second: "Night Trams"}
