"""Notebook support: the database, the display of results, the gallery, JupyterLab."""
