"""PSI/J's jobs on Falkon:

>>> from psij import Job, JobExecutor, JobSpec
>>> executor = JobExecutor.get_instance("falkon", url="access.json")  # doctest: +SKIP
>>> executor.submit(Job(JobSpec("/bin/date")))  # doctest: +SKIP

PSI/J finds the executor by ``psij-descriptors/falkon_descriptor.py``, and loads this file
whenever it is imported itself: what it takes from the rest of the package is imported when
an executor is made.
"""

import itertools
import os
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from psij import (
    InvalidJobException,
    Job,
    JobExecutor,
    JobExecutorConfig,
    JobSpec,
    JobState,
    JobStatus,
    Launcher,
    ResourceSpecV1,
    SubmitException,
)

if TYPE_CHECKING:
    from ._jobs import Ended

LOOK_SECONDS = 0.2
"""How often jobs that do not run yet are asked for."""
ENDED_MAX = 4096
"""Jobs of this process that have ended and can still be attached to."""

_numbers = itertools.count()
_known: "OrderedDict[str, _Known]" = OrderedDict()
"""The jobs of this process by their native ids."""
_lock = threading.Lock()
"""Guards what is known of all jobs."""


class _Known:
    """A job that was submitted, and those that are attached to it."""

    def __init__(self, executor: "FalkonJobExecutor", number: int, job: Job, launcher: Launcher):
        self.executor = executor
        self.number = number
        self.launcher = launcher
        self.jobs = [job]
        self.status = JobStatus(JobState.QUEUED)
        self.files: List[Path] = []


class FalkonJobExecutor(JobExecutor):  # type: ignore[misc]
    """A job executor that runs each job as a task, by PSI/J's launchers.

    The ``url`` is the path of a dispatcher's access file; its executors must find
    ``config.work_directory`` and the job's files where this machine does. Without it jobs
    run on this machine.

    Jobs have one node. Their processes times ``cpu_cores_per_process`` and
    ``gpu_cores_per_process``, and their ``memory``, are reserved (on this machine at most
    the CPUs that it has); ``attributes.duration`` is their time limit. Custom attributes
    ``falkon.priority``, ``falkon.retries`` and ``falkon.resources`` (name to count) are
    options of tasks; queues, accounts and reservations are those of Falkon's provisioner,
    and are not used here.

    :meth:`attach` and :meth:`list` know the jobs of this process.
    """

    def __init__(
        self, url: Optional[str] = None, config: Optional[JobExecutorConfig] = None
    ) -> None:
        from ._jobs import Jobs

        super().__init__(url=url, config=config or JobExecutorConfig.DEFAULT)
        self._jobs = Jobs(url, output=None, ended=self._has_ended)
        self._work = Path(self.config.work_directory) / "falkon"
        self._work.mkdir(parents=True, exist_ok=True)
        self._queued: Dict[int, _Known] = {}
        """Jobs that were not seen to run."""
        self._all: Dict[int, _Known] = {}
        self._may_look = threading.Condition(_lock)
        self._looking: Optional[threading.Thread] = None

    def submit(self, job: Job) -> None:
        spec = self._check_job(job)
        options = self._options(spec)
        launcher = self._get_launcher(spec.launcher or "single")
        number = next(_numbers)
        known = _Known(self, number, job, launcher)
        try:
            argv = self._command(job, spec, known)
            with _lock:
                job._native_id = "falkon-%d-%d" % (os.getpid(), number)
                self._all[number] = self._queued[number] = known
                _known[job._native_id] = known
            folder = spec.directory or Path.cwd()
            self._jobs.submit(argv, options, number=number, cwd=str(folder))
        except Exception as error:
            with _lock:
                self._forget(known)
            _known.pop(job._native_id or "", None)
            _remove(known.files)
            raise SubmitException("Failed to submit job: %s" % error, exception=error)
        # A job that has ended meanwhile stays so: PSI/J's states only go forward.
        self._set_job_status(job, JobStatus(JobState.QUEUED, time=time.time()))
        self._look()

    def _command(self, job: Job, spec: JobSpec, known: _Known) -> List[str]:
        """What a task runs: the launcher's command, whose output tells its failures."""
        output = self._work / (job.id + ".out")
        known.files.append(output)
        variables = {name: str(value) for name, value in (spec.environment or {}).items()}
        count = spec.resources.computed_process_count
        if count > 1:
            nodes = self._work / (job.id + ".nodes")
            known.files.append(nodes)
            nodes.write_text("localhost\n" * count)
            variables["PSIJ_NODEFILE"] = str(nodes)
        environment = ["/usr/bin/env", *([] if spec.inherit_environment else ["-i"])]
        environment += ["%s=%s" % one for one in variables.items()]
        run = ["/bin/sh", "-c", 'exec >"$0" 2>&1; exec "$@"', str(output)]
        return [*run, *environment, *known.launcher.get_launch_command(job)]

    def _options(self, spec: JobSpec) -> Dict[str, Any]:
        """What a job reserves, and its limits."""
        resources = spec.resources
        if not isinstance(resources, ResourceSpecV1):
            raise InvalidJobException("Falkon knows version 1 of resource specifications only")
        if resources.computed_node_count > 1:
            raise InvalidJobException(
                "the job has %d nodes, and Falkon runs a job on one: submit jobs of one node "
                "each" % resources.computed_node_count
            )
        processes = resources.computed_process_count
        cpus = processes * (resources.cpu_cores_per_process or 1)
        if self.url is None:
            cpus = min(cpus, os.cpu_count() or 1)
        options: Dict[str, Any] = {"cpus": cpus}
        if resources.memory:
            options["memory"] = resources.memory
        if resources.gpu_cores_per_process:
            options["gpus"] = processes * resources.gpu_cores_per_process
        attributes = spec.attributes
        if attributes is not None and attributes.duration:
            options["timeout"] = attributes.duration
        for name, value in ((attributes and attributes.custom_attributes) or {}).items():
            prefix, _, option = name.partition(".")
            if prefix == "falkon":
                options[option] = value
        try:
            from ._options import task_class

            task_class(options)
        except (TypeError, ValueError) as error:
            raise InvalidJobException(str(error))
        return options

    # Ends.

    def _has_ended(self, ended: "Ended") -> None:
        with _lock:
            known = self._all.get(ended.number)
            if known is None:
                return
            self._forget(known)
        message = self._message(known, ended)
        _remove(known.files)
        state = JobState.COMPLETED if ended.exit_code == 0 else JobState.FAILED
        if ended.is_cancelled:
            state = JobState.CANCELED
        code = ended.exit_code if ended.signal is None else -ended.signal
        self._tell(known, JobStatus(state, time=time.time(), exit_code=code, message=message))

    def _message(self, known: _Known, ended: "Ended") -> Optional[str]:
        """Why a job failed, if its exit code does not say it."""
        if ended.exit_code == 0 or ended.is_cancelled:
            return None
        try:
            output = known.files[0].read_text(errors="replace")
        except OSError:
            output = ""
        if ended.exit_code is None:
            return str(ended.error)
        if known.launcher.is_launcher_failure(output):
            return str(known.launcher.get_launcher_failure_message(output))
        return None

    def _forget(self, known: _Known) -> None:
        self._all.pop(known.number, None)
        self._queued.pop(known.number, None)

    def _tell(self, known: _Known, status: JobStatus) -> None:
        with _lock:
            known.status = status
            jobs = list(known.jobs)
            if status.final:
                ended = [id for id, one in _known.items() if one.status.final]
                for id in ended[: max(0, len(ended) - ENDED_MAX)]:
                    del _known[id]
        for job in jobs:
            self._set_job_status(job, status)

    # Starts: a thread looks as long as there are jobs that do not run yet.

    def _look(self) -> None:
        with _lock:
            if self._looking is None and self._queued:
                self._looking = threading.Thread(
                    target=self._look_at_queued, daemon=True, name="falkon-psij"
                )
                self._looking.start()

    def _look_at_queued(self) -> None:
        while True:
            try:
                running = self._jobs.running()
            except Exception:
                running = {}  # The dispatcher is away, or the executor has ended.
            with _lock:
                started = [self._queued.pop(one) for one in running if one in self._queued]
            for known in started:
                self._tell(known, JobStatus(JobState.ACTIVE, time=time.time()))
            with _lock:
                if not self._queued:
                    self._looking = None
                    return
            time.sleep(LOOK_SECONDS)

    # What else there is to do with jobs.

    def cancel(self, job: Job) -> None:
        known = _known.get(job.native_id or "")
        if known is None:
            raise SubmitException("the job is not one of this process, and cannot be cancelled")
        if known.executor is not self:
            known.executor.cancel(job)
            return
        with _lock:
            is_here = self._all.get(known.number) is known
            self._forget(known)
        if is_here:
            self._jobs.cancel([known.number])
            _remove(known.files)
            self._tell(known, JobStatus(JobState.CANCELED, time=time.time()))

    def list(self) -> "List[str]":
        with _lock:
            ours = [(id, one) for id, one in _known.items() if one.executor.url == self.url]
            return [id for id, one in ours if not one.status.final]

    def attach(self, job: Job, native_id: str) -> None:
        if job.status.state != JobState.NEW:
            raise InvalidJobException("Job must be in the NEW state")
        with _lock:
            known = _known.get(native_id)
            if known is None:
                raise SubmitException(
                    "there is no job %s of this process; jobs of other processes cannot be "
                    "attached to" % native_id
                )
            known.jobs.append(job)
            status = known.status
        job.executor = self
        job._native_id = native_id
        self._set_job_status(job, status)


def _remove(files: List[Path]) -> None:
    for file in files:
        try:
            file.unlink()
        except OSError:
            pass  # It was not made, or its folder is gone.
