"""`benchmarks` is a package of the repository, not of the product: it is imported from there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
