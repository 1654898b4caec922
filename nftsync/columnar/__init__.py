"""SQLite at one moment as typed columns: the base of frames, charts, gallery, export and lake."""
