"""What tests of frames share."""

from __future__ import annotations

import pytest

from tests.kit.histories import Histories


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return Histories(tmp_path_factory.mktemp("histories"))
