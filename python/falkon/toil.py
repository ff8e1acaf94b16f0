"""Toil's jobs, and with them CWL and WDL workflows, on Falkon:
``toil-cwl-runner --batchSystem falkon workflow.cwl``.

Toil finds the batch system by the package ``toil_batch_system_falkon``.
"""

import math
import os
import sys
from argparse import ArgumentParser, _ArgumentGroup
from typing import Any, Dict, List, Optional, Union

from toil.batchSystems.abstractBatchSystem import (
    EXIT_STATUS_UNAVAILABLE_VALUE,
    BatchJobExitReason,
    InsufficientSystemResources,
    UpdatedBatchJobInfo,
)
from toil.batchSystems.cleanup_support import BatchSystemCleanupSupport
from toil.batchSystems.options import OptionSetter
from toil.common import Config
from toil.job import JobDescription, Requirer

from ._errors import SessionLost
from ._jobs import Ended, Jobs

MILLI = 1000
"""Reserved CPUs have three decimals."""
LOCAL_LOOK_SECONDS = 0.2
"""How often the jobs that Toil runs beside itself are asked for while it waits."""


class FalkonBatchSystem(BatchSystemCleanupSupport):  # type: ignore[misc]
    """A batch system of Toil that runs each job as a task.

    ``--falkonAccess FILE`` (or ``TOIL_FALKON_ACCESS``) names the access file of a
    dispatcher, whose executors must find the job store and Toil's work directory where
    this machine does. Without it jobs run on this machine, on ``--maxCores`` of its CPUs
    at most.

    Cores, memory and GPUs of a job are reserved, and its ``walltime`` is its time limit;
    its disk is not.
    """

    def __init__(self, config: Config, maxCores: float, maxMemory: float, maxDisk: int) -> None:
        super().__init__(config, maxCores, maxMemory, maxDisk)
        access = getattr(config, "falkon_access", None)
        workers = None
        if access is None:
            workers = max(1, int(min(maxCores, os.cpu_count() or 1)))
        show = None if getattr(config, "noStdOutErr", False) else _show
        self._jobs = Jobs(access, workers, output=show)

    @classmethod
    def supportsAutoDeployment(cls) -> bool:
        return False

    def issueBatchJob(
        self,
        command: str,
        job_desc: JobDescription,
        job_environment: Optional[Dict[str, str]] = None,
    ) -> int:
        local = self.handleLocalJob(command, job_desc)
        if local is not None:
            return int(local)
        self.check_resource_request(job_desc)
        return self._jobs.submit(
            ["/bin/sh", "-c", command],
            _options(job_desc),
            number=self.getNextJobID(),
            env={"PATH": _search_path(), **self.environment, **(job_environment or {})},
            cwd=os.getcwd(),
        )

    def killBatchJobs(self, jobIDs: List[int]) -> None:
        self.killLocalJobs(jobIDs)
        self._jobs.cancel(jobIDs)

    def getIssuedBatchJobIDs(self) -> List[int]:
        return [*self.getIssuedLocalJobIDs(), *self._jobs.issued()]

    def getRunningBatchJobIDs(self) -> Dict[int, float]:
        return {**self.getRunningLocalJobIDs(), **self._jobs.running()}

    def getUpdatedBatchJob(self, maxWait: int) -> Optional[UpdatedBatchJobInfo]:
        left = float(maxWait)
        while True:
            local = self.getUpdatedLocalJob(0)
            if local is not None:
                return local
            ended = self._jobs.wait(min(left, LOCAL_LOOK_SECONDS))
            if ended is not None:
                return _updated(ended)
            left -= LOCAL_LOOK_SECONDS
            if left <= 0:
                return None

    def shutdown(self) -> None:
        self.shutdownLocal()
        self._jobs.shutdown()

    def _check_accelerator_request(self, requirer: Requirer) -> None:
        for accelerator in requirer.accelerators:
            if accelerator["kind"] != "gpu":
                raise InsufficientSystemResources(
                    requirer, "accelerators", details=["Falkon reserves GPUs, and no other kind."]
                )

    @classmethod
    def add_options(cls, parser: Union[ArgumentParser, _ArgumentGroup]) -> None:
        parser.add_argument(
            "--falkonAccess",
            dest="falkon_access",
            default=None,
            env_var="TOIL_FALKON_ACCESS",
            help="Access file of the Falkon dispatcher that jobs go to (falkon start). "
            "Without it they run on this machine.",
        )

    @classmethod
    def setOptions(cls, setOption: OptionSetter) -> None:
        setOption("falkon_access")


def _search_path() -> str:
    """Where jobs find Toil's worker: beside this interpreter, as on this machine."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def _options(job: JobDescription) -> Dict[str, Any]:
    """What a job reserves."""
    options: Dict[str, Any] = {
        "cpus": max(1, math.ceil(job.cores * MILLI)) / MILLI,
        "memory": int(job.memory),
    }
    gpus = sum(one["count"] for one in job.accelerators if one["kind"] == "gpu")
    if gpus:
        options["gpus"] = gpus
    seconds = getattr(job, "walltime", 0)
    if seconds:
        options["timeout"] = seconds
    return options


def _updated(ended: Ended) -> UpdatedBatchJobInfo:
    """What Toil hears of a job's end."""
    code = ended.exit_code
    reason = BatchJobExitReason.FAILED
    if code == 0:
        reason = BatchJobExitReason.FINISHED
    elif ended.is_cancelled:
        reason = BatchJobExitReason.KILLED
    elif ended.is_timeout:
        reason = BatchJobExitReason.TIMELIMIT
    elif code is None and ended.signal is None:
        lost = isinstance(ended.error, SessionLost)
        reason = BatchJobExitReason.LOST if lost else BatchJobExitReason.ERROR
    if code is None and ended.error is not None:
        print("Falkon: job %d: %s" % (ended.number, ended.error), file=sys.stderr)
    return UpdatedBatchJobInfo(
        ended.number,
        EXIT_STATUS_UNAVAILABLE_VALUE if code is None else code,
        reason,
    )


def _show(_: int, data: bytes) -> None:
    sys.stderr.write(data.decode("utf-8", "replace"))
    sys.stderr.flush()
