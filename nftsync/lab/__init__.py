"""What notebooks stand on: which database they open, the demo's provider, JupyterLab's start."""
