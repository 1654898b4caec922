"""Files of frames, tables and databases; each appears under its name once it is complete.

`progress` shows a progress bar; None: on a terminal. InputError means an unusable argument;
StoreError, an unreadable database or unwritable file.
"""
