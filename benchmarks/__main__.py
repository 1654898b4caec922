"""Run every benchmark, one after the other."""

from __future__ import annotations

import subprocess
import sys

if __name__ == "__main__":
    for name in ("sync", "frames", "analysis", "receiver", "webhooks"):
        print(f"--- {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=True)
