"""What PSI/J's tests have in common."""

from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from psij import JobExecutor, JobState


def _make_test_dir():
    (Path.home() / ".psij" / "test").mkdir(parents=True, exist_ok=True)


def _get_timeout(_):
    return timedelta(minutes=1)


@contextmanager
def _deploy(path):
    yield Path(path)


def assert_completed(job, status, attached=False):
    assert status is not None and status.state == JobState.COMPLETED, status


def _get_executor_instance(params, job=None):
    if job is not None:
        job.spec.launcher = params.launcher
    return JobExecutor.get_instance(params.executor, url=params.url)
