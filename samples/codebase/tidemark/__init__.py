"""Tide tables and berth scheduling for small harbours.

The package is usable in two ways. As a library, import the piece you need:

    from tidemark.stations import Catalogue
    from tidemark.tables import daily_table

As a service, run ``tidemark serve`` (see :mod:`tidemark.cli`), which wires the same pieces
together behind a small HTTP interface. Nothing at import time touches the disk or the network.
"""

__version__ = "2.6.1"

#: Version of the HTTP interface, the ``v1`` in every path. It moves far more slowly than
#: ``__version__``: see docs/api.md for what counts as a breaking change.
API_VERSION = "v1"
