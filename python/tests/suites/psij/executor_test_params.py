"""What PSI/J's tests know of the executor that they are for."""

import os
import shutil

LAUNCHERS = ["single", "multiple"] + (["mpirun"] if shutil.which("mpirun") else [])


class ExecutorTestParams:
    custom_attributes = None
    custom_attributes_raw = None

    def __init__(self, launcher):
        self.executor = "falkon"
        self.launcher = launcher
        self.url = os.environ.get("FALKON_ACCESS")

    def __repr__(self):
        return "falkon:" + self.launcher
