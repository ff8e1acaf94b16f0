"""The program that calls Python functions for a Falkon executor, one after another.

An executor starts it (``__main__.py``) and keeps it. It needs nothing but the standard
library of Python 3.8 or newer. docs/workers.md describes the protocol, and what other
languages need.

The executor carries these modules within itself and writes them down where it runs, as
the package ``falkon_worker``: none of them imports another module of ``falkon``. Modules
that only templates need are imported there alone.
"""
