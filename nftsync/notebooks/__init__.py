"""Notebooks: the database they open, how they display results, the gallery, JupyterLab's start."""
