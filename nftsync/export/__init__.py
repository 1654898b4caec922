"""Files: frames, tables and databases; each file appears under its name when it is complete."""
