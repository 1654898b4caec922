"""Pages for developers name only modules, files and targets that exist."""

import re

from tests.docs.pages import ROOT, prose, read

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "develop").glob("*.md"))]


def test_modules_and_their_names_exist():
    missing = []
    for page in PAGES:
        for name in re.findall(r"`((?:[a-z_]+/)+[\w./]*|[a-z]+\.[A-Za-z]\w+)`", prose(page)):
            if any((folder / name).exists() for folder in (ROOT, ROOT / "nftsync")):
                continue
            module, _, attribute = name.partition(".")
            path = ROOT / "nftsync" / f"{module}.py"
            is_missing = "/" in name and "NAME" not in name
            if path.exists():
                is_missing = re.search(rf"\b{attribute}\b", read(path)) is None
            if is_missing:
                missing.append(f"{page.name}: {name}")
    assert missing == []


def test_targets_and_programs_exist():
    targets = re.findall(r"^([a-z]+):", read(ROOT / "Makefile"), re.M)
    for page in PAGES:
        named = re.findall(r"(?:^|`)make ([a-z]+)", read(page), re.M)
        assert [name for name in named if name not in targets] == [], page.name
        for module, script in re.findall(r"python (?:-m ([\w.]+)|(\S+\.py))", read(page)):
            path = script or module.replace(".", "/")
            assert (ROOT / path).exists() or (ROOT / f"{path}.py").exists(), path
