"""Snakemake's own tests of executor plug-ins."""

import snakemake.common.tests
from snakemake_executor_plugin_falkon import ExecutorSettings


class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self):
        return "falkon"

    def get_executor_settings(self):
        return ExecutorSettings()
