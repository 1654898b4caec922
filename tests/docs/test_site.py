"""The site of `make docs`: links, navigation, llms.txt, examples, and the build."""

import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import ROOT, links_and_anchors, read

DOCS = ROOT / "docs"
FOLDER = DOCS / "site"
#: All pages but README.md, in the order of the navigation.
WALK = [page for _, page in runpy.run_path(str(FOLDER / "pages.py"))["walk"]()]
PAGES = [ROOT / "README.md", *WALK]
EXAMPLES = sorted((DOCS / "examples").glob("*.html"))
BUILT = pytest.mark.skipif(
    find_spec("sphinx") is None, reason="`make docs` has not installed Sphinx"
)


def test_each_link_to_a_file_or_a_heading_leads_somewhere():
    broken, seen = [], 0
    for page in PAGES:
        for target in links_and_anchors(page)[0]:
            if re.match(r"[a-z]+:", target):
                continue
            seen += 1
            name, _, anchor = unquote(target).partition("#")
            file = (page.parent / name).resolve() if name else page
            if file.is_dir() and name:  # on GitHub, a folder shows its README; on the site, too
                file /= "README.md"
            if not file.exists() or (anchor and anchor not in links_and_anchors(file)[1]):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []
    assert seen > 100


def test_each_page_is_in_the_navigation_once_and_linked_from_its_groups_readme():
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("C*.md")]
    assert sorted(WALK) == sorted(pages)
    for group in {page.parent for page in WALK} - {DOCS, ROOT}:
        targets = links_and_anchors(group / "README.md")[0]
        linked = {(group / target.partition("#")[0]).resolve() for target in targets}
        assert {*group.glob("*.md")} - linked <= {group / "README.md"}


def test_the_list_of_pages_for_agents_is_current():
    command = [sys.executable, FOLDER / "make_llms.py", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.stdout + checked.stderr == ""
    listed = re.findall(r"^- \[.+?\]\((.+?)\): .+", read(ROOT / "llms.txt"), re.M)
    assert listed == [page.relative_to(ROOT).as_posix() for page in WALK]


def test_the_examples_are_small_load_nothing_and_name_no_folder():
    assert [example.name for example in EXAMPLES] == ["gallery.html", "report.html"]
    assert sum(example.stat().st_size for example in EXAMPLES) <= 1_500_000
    assert (DOCS / "images" / "report.png").stat().st_size <= 200_000
    for example in EXAMPLES:
        text = read(example)
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
        assert "default-src 'none'" in policy
        assert "http" not in policy
        assert re.findall(r"/(?:tmp|home|root|srv|Users)/", text) == []
        assert re.findall(r"""(?:src|srcset|url)\W*[=(]\W*https?:""", text) == []
    assert "<script" not in read(DOCS / "examples" / "report.html")


@BUILT
def test_the_site_builds_without_warnings_and_loads_nothing_from_other_hosts(tmp_path):
    site = tmp_path / "site"
    command = [Path(sys.executable).with_name("sphinx-build"), "--quiet", "--fail-on-warning"]
    command += ["--conf-dir", FOLDER, "--doctree-dir", tmp_path / "doctrees", ROOT, site]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    for page in PAGES:
        made = (site / page.relative_to(ROOT)).with_suffix(".html")
        loaded = r'<(?:link|script|img|iframe|source)[^>]*(?:href|src)="((?:https?:)?//[^"]*)'
        assert re.findall(loaded, read(made)) == [], page
        if page.name == "README.md":
            assert 'url=README.html"' in read(made.with_name("index.html"))
        for target in re.findall(r'<a [^>]*href="([^"]+)"', read(made)):
            if not re.match(r"[a-z]+:", target):
                name, _, anchor = unquote(target).partition("#")
                file = made.parent / name if name else made
                assert file.is_file(), f"{made}: {target}"
                assert file.suffix != ".md", f"{made}: {target}"
                assert not anchor or f'id="{anchor}"' in read(file), f"{made}: {target}"
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\W*(?:https?:)?//", read(style)) == [], style
    assert len(read(site / "searchindex.js")) > 50_000
    for example in EXAMPLES:
        assert read(site / example.relative_to(ROOT)) == read(example)
