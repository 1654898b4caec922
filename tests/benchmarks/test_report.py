"""The table of figures, and how it gets into a document."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figure import Figure
from benchmarks.report import BEGIN, END, NAMES, rows_in, rows_of, table, written

TEXTS = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="\\") | st.just("|")
)
FIGURES = st.builds(Figure, TEXTS, TEXTS, TEXTS, TEXTS, st.sampled_from([True, False, None]))
DOCUMENT = f"before\n{BEGIN}\n\n{END}\nafter\n"


@given(st.lists(FIGURES, min_size=1))
def test_a_table_is_read_back_as_it_was_written(figures):
    rows = rows_of("sync", figures)
    assert rows_in(table(rows)) == {"sync": rows}


def test_benchmarks_that_did_not_run_keep_their_rows():
    old = {name: rows_of(name, [Figure(f"{name} | once", "1 s")]) for name in ("growth", "frames")}
    new = {"frames": rows_of("frames", [Figure("frames again", "2 s", "", "under 3 s", True)])}
    text = written(written(DOCUMENT, old), new)
    assert rows_in(text) == {"frames": new["frames"], "growth": old["growth"]}
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert sorted(rows_in(text), key=NAMES.index) == list(rows_in(text))


def test_whether_a_target_is_met_is_told_only_where_there_is_one():
    figures = [
        Figure("met", "1", "", "2", True),
        Figure("missed", "3", "", "2", False),
        Figure("not measured", "", "", "2"),
        Figure("told", "1"),
    ]
    assert [row[-1] for row in rows_of("sync", figures)] == ["yes", "**no**", "?", "–"]
