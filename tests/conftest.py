"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing about whether it is right.
settings.register_profile("nftsync", deadline=None)
settings.load_profile("nftsync")
