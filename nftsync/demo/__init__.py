"""The whole product on one machine with nothing to configure."""

from __future__ import annotations

from nftsync.demo.files import begin_afresh, is_demo
from nftsync.demo.run import DemoResult, run_demo

__all__ = ["DemoResult", "begin_afresh", "is_demo", "run_demo"]
