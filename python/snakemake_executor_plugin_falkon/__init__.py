"""Snakemake's jobs on Falkon: ``snakemake --executor falkon --jobs 100``."""

import asyncio
import os
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, AsyncGenerator, Dict, List, Optional

from falkon import Executor as FalkonExecutor
from falkon._commands import CommandKind, command_row, submit_row
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from . import _shell

CHECK_SECONDS = 1.0
"""Jobs are looked at when one has ended, and at least so often."""
CLOSING_SECONDS = 0.05
"""The same while it ends."""
MEGABYTE = 1_000_000
MINUTE_SECONDS = 60


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    access: Optional[str] = field(
        default=None,
        metadata={
            "help": "Access file of the Falkon dispatcher that jobs go to (falkon start). "
            "Without it they run on this machine.",
            "env_var": True,
            "required": False,
        },
    )
    retries: int = field(
        default=0,
        metadata={
            "help": "How often Falkon tries a job again before Snakemake hears that it failed.",
            "env_var": False,
            "required": False,
        },
    )
    whole_jobs: bool = field(
        default=False,
        metadata={
            "help": "Start Snakemake for each job, also for those that are a shell command "
            "and nothing else.",
            "env_var": False,
            "required": False,
        },
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


class Executor(RemoteExecutor):  # type: ignore[misc]
    """Each job is a task: its shell command, or one that runs Snakemake for this job
    alone."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        # The thread that looks at jobs is started before what follows is there.
        self._ended = threading.Event()
        self._closing = False
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings or ExecutorSettings()
        self._settings = settings
        self._numbers = 0
        self._falkon = FalkonExecutor(settings.access, output=_show)

    def run_job(self, job: Any) -> None:
        kind = CommandKind(self._falkon, retries=self._settings.retries, **self._options(job))
        row = self._command(job)
        future = submit_row(self._falkon, kind, row)
        self._numbers += 1
        self.report_job_submission(
            SubmittedJobInfo(job, external_jobid=str(self._numbers), aux={"future": future})
        )
        future.add_done_callback(lambda _: self._ended.set())

    def _command(self, job: Any) -> bytes:
        direct = None
        # With fewer threads than it asks for, what a rule says is evaluated anew.
        has_threads = self._settings.access is not None or job.threads <= (os.cpu_count() or 1)
        if has_threads and not self._settings.whole_jobs:
            try:
                direct = _shell.command(self.workflow, job, self.envvars())
            except AttributeError as error:
                # It uses more of Snakemake than the interface of executors.
                self.logger.debug("Snakemake is started for job %s: %s" % (job.jobid, error))
        if direct is None:
            return command_row(["/bin/sh", "-c", self.format_job_exec(job)], cwd=os.getcwd())
        self.workflow.async_run(_shell.prepare(job))
        argv, variables = direct
        return command_row(argv, env=variables, cwd=os.getcwd())

    def _options(self, job: Any) -> Dict[str, Any]:
        """What a job needs, of what its rule says."""
        resources = job.resources
        cpus = job.threads
        if self._settings.access is None:
            # As with Snakemake on one machine: no more threads than it has.
            cpus = min(cpus, os.cpu_count() or 1)
        options: Dict[str, Any] = {"cpus": cpus, "priority": int(getattr(job, "priority", 0) or 0)}
        memory = _number(resources.get("mem_mb"))
        if memory:
            options["memory"] = memory * MEGABYTE
        gpus = _number(resources.get("gpu")) or _number(resources.get("gpus"))
        if gpus:
            options["gpus"] = gpus
        minutes = _number(resources.get("runtime"))
        if minutes:
            options["timeout"] = minutes * MINUTE_SECONDS
        return options

    async def check_active_jobs(
        self, active_jobs: List[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            future = info.aux["future"]
            if not future.done():
                yield info
            elif future.cancelled():
                self.report_job_error(info, msg="It was cancelled. ")
            elif future.exception() is not None:
                self.report_job_error(info, msg="Falkon: %s. " % future.exception())
            else:
                self.report_job_success(info)

    async def sleep(self) -> None:
        if self._closing:
            # Whoever closes needs the lock.
            await asyncio.sleep(CLOSING_SECONDS)
        else:
            await asyncio.to_thread(self._ended.wait, CHECK_SECONDS)
            self._ended.clear()

    def cancel_jobs(self, active_jobs: List[SubmittedJobInfo]) -> None:
        for info in active_jobs:
            info.aux["future"].cancel()

    def shutdown(self) -> None:
        self._closing = True
        self._ended.set()
        super().shutdown()
        self._falkon.shutdown()


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _show(_: int, data: bytes) -> None:
    sys.stderr.write(data.decode("utf-8", "replace"))
    sys.stderr.flush()
