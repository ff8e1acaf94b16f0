"""Where Toil finds Falkon's batch system (``--batchSystem falkon``)."""

from typing import Any

from toil.batchSystems.registry import add_batch_system_factory


def _batch_system() -> Any:
    from falkon.toil import FalkonBatchSystem

    return FalkonBatchSystem


add_batch_system_factory("falkon", _batch_system)
