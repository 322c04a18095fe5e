"""longctx: ask questions of whole folders, a million tokens at a time, on the machine you have."""
