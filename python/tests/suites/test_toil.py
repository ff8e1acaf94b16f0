"""Toil's own tests of batch systems, with Falkon's (suites.sh)."""

from toil.batchSystems.registry import get_batch_system
from toil.test.batchSystems.batchSystemTest import (
    AbstractBatchSystemJobTest,
    hidden,
    numCores,
)
from toil.test.conftest import rootpath  # noqa: F401


class FalkonBatchSystemTest(hidden.AbstractBatchSystemTest):
    def createBatchSystem(self):
        kind = get_batch_system("falkon")
        return kind(config=self.config, maxCores=numCores, maxMemory=1e9, maxDisk=2001)


class TestFalkonBatchSystemJob(AbstractBatchSystemJobTest):
    sleepTime = 5

    def getBatchSystemName(self):
        return "falkon"
