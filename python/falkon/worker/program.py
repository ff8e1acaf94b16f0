"""The program: a worker, or a template of workers."""

import os
import sys

from .changes import watch_all
from .modules import watch_modules
from .references import make_importable
from .serving import Worker, work


def main():
    """Makes calls, or copies that do, until the executor is gone."""
    foreseen = os.environ.pop("FALKON_WORKER_TEMPLATE", None)
    if foreseen is not None:
        from .template import UNFIT, Template
    # Modules are found in the working directory, as with `python -c`. (Run as
    # a file, the first entry is the file's folder.)
    sys.path[0:1] = [""]
    sys.argv[:] = [""]
    make_importable()
    watch_all(Worker.call.__code__)
    watch_modules()
    if foreseen is not None:
        template = Template()
        template.load(foreseen.split(","))
        if not template.is_fit():
            os._exit(UNFIT)
        template.serve()
    work()
