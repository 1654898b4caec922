"""Each deliberate break still fits the package, and uses only names that exist."""

import subprocess
import sys

from tests.model.breaks import read_breaks


def test_each_break_replaces_code_of_the_package_by_valid_code(tmp_path):
    problems = []
    for number, one in enumerate(read_breaks()):
        try:
            file, text = one.apply()
            compile(text, file, "exec")
        except (LookupError, SyntaxError) as error:
            problems.append(f"{one.what}: {error}")
        else:
            (tmp_path / f"break_{number}.py").write_text(text)
    assert problems == []
    names = ("--isolated", "--select=F821,F822,F823", "--output-format=concise")
    command = [sys.executable, "-m", "ruff", "check", *names, str(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
