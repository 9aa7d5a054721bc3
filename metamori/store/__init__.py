"""The store on disk: codecs, names, commits. Imports the tables, never the other way."""
