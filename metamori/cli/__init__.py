"""The command line: one file per verb, parser and action together. `main` imports only the verb asked for."""
