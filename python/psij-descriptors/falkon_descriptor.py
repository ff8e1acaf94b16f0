"""Where PSI/J finds Falkon's executor: ``JobExecutor.get_instance("falkon")``."""

from packaging.version import Version
from psij.descriptor import Descriptor

__PSI_J_EXECUTORS__ = [
    Descriptor(
        name="falkon",
        nice_name="Falkon",
        version=Version("0.1.0"),
        cls="falkon.psij.FalkonJobExecutor",
    )
]
