"""Has Pydra's own tests run with Falkon in the place of its process pool (suites.sh):
a pytest plug-in."""

import shutil

from falkon.pydra import FalkonWorker
from pydra.engine.workers import WORKERS


class PoolWorker(FalkonWorker):
    plugin_name = "cf"

    def __init__(self, n_procs=None):
        super().__init__(n_procs=n_procs or 2)


WORKERS["cf"] = PoolWorker
# Where Slurm is installed, Pydra's tests use it instead.
_which = shutil.which
shutil.which = lambda name, *rest, **more: None if name == "sbatch" else _which(name, *rest, **more)
