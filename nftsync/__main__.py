"""`python -m nftsync` is `nftsync`."""

from nftsync.cli import main

if __name__ == "__main__":
    main()
