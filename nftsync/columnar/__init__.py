"""A database at one moment as typed columns: the base of frames, charts, gallery, export, lake."""
