"""Files: frames, tables and whole databases, each file appearing once it is whole."""
