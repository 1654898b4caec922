"""Files of frames, tables and databases; each appears under its name once it is complete.

Long writes show a progress bar on a terminal and in a notebook.
"""
