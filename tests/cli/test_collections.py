"""What collections are called, as commands show and set it."""

from pathlib import Path

import pandas as pd

from nftsync import frames


def test_the_list_is_that_of_the_frame(site, command):
    listed = command("collections", "--json").json
    known = frames.collections(site.database)
    names = ["contract", "contract_address", "name_source", "tokens", "held", "holders"]
    expected = known[names].astype(object).where(known[names].notna(), None).to_dict("records")
    assert [{name: row[name] for name in names} for row in listed] == expected
    unnamed = [row["name"] is None for row in listed]
    assert unnamed == [row["name_source"] is None for row in listed]
    done = command("collections").says(*(row["contract"] for row in listed))
    assert f"Without a name: {sum(unnamed)} of {len(listed)} collections." in done.err
    assert "nftsync collections label ADDRESS NAME" in done.err
    address = known["contract_address"][0]
    wrong = address[:-1] + ("0" if address[-1] != "0" else "1")
    command("collections", "label", wrong, "Cats").tells(address)


def test_a_label_shows_everywhere_until_it_is_taken_away(site, command, tmp_path):
    """A contract is named by its address in any case, or by its name."""
    before = frames.collections(site.database)
    address = before["contract_address"][0]
    command("collections", "label", f"0x{address[2:].upper()}", " Salt Harbours ").says()
    (row, *_) = command("collections", "--json").json
    assert (row["name"], row["name_source"]) == ("Salt Harbours", "given")
    for words in ("collections", "holdings"):
        assert "Salt Harbours" in command(words).out
    rows = command("holdings", "--contract", "salt harbours", "--json").json
    assert {(row["contract"], row["collection"]) for row in rows} == {
        (address.lower(), "Salt Harbours")
    }
    command("export", tmp_path / "out").says()
    exported = pd.read_parquet(tmp_path / "out" / "holdings.parquet")
    assert set(exported[exported["contract"] == address.lower()]["collection"]) == {"Salt Harbours"}
    command("holdings", "--contract", "Salt Harbour").tells("similar: 'Salt Harbours'")
    for named, name in (("salt harbours", "Harbours"), ("Harbours", "")):
        assert command("collections", "label", named, name) == (0, "", "")
        rows = command("collections", "--json").json
        given = [row["name"] for row in rows if row["name_source"] == "given"]
        assert given == ([name] if name else [])
    unknown = "unknown collection or contract 'Salt Harbours'"
    command("collections", "label", "Salt Harbours", "Harbours").says(unknown, code=2)
    pd.testing.assert_frame_equal(frames.collections(site.database), before)


def test_a_sync_reads_the_collections_file(site):
    first, second = frames.collections(site.database)["contract_address"][:2]
    Path("ours.toml").write_text('collections_file = "names.csv"\n')

    def named() -> dict[str, str]:
        found = frames.collections(site.database)
        of_file = found[found["name_source"] == "file"]
        return dict(zip(of_file["contract_address"], of_file["collection"], strict=True))

    for address, mark, name in ((first, ";", "Salt Harbours"), (second, ",", "Night Trams")):
        text = f"contract_address{mark}name\n{address.upper()}{mark}{name}\n"
        Path("names.csv").write_text(text)
        site.sync(config="ours.toml")
        assert named() == {address: name}
    site.sync()
    assert named() == {second: "Night Trams"}
