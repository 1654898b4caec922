"""Run the command `nftsync` as `python -m nftsync`."""

from nftsync.cli import main

if __name__ == "__main__":
    main()
