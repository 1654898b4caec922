"""The database: its tables, the mirror that writes them, and how it is opened."""
