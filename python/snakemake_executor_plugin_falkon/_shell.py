"""Jobs that are a shell command and nothing else: what Snakemake would run for them on
the node, so that it need not be started there.

Snakemake's scheduler, in this process, does what comes after a job (checks of outputs,
temporary and protected files) in any case. What comes before and the command itself are
made here, from Snakemake's own objects. A job that has anything which only Snakemake on
the node can do has no such command.
"""

from typing import Any, Dict, List, Optional, Tuple

from snakemake.io import is_flagged
from snakemake.shell import shell
from snakemake_interface_executor_plugins.settings import SharedFSUsage

COMMAND_BYTES_MAX = 100_000
"""Longer commands, with the names of files, are Snakemake's matter: one argument may
have 128 KiB."""
NOT_EVALUATED = "<TBD>"
"""What Snakemake writes for a value that is known on the node only."""
WHOLE_FILES = ("update", "pipe", "service")
"""Outputs with these flags need more than to be prepared."""

# What an attempt before this one has left goes. On a shared file system, what another
# node wrote may be seen a while later.
_RUN = """seconds=$1; shell=$2; command=$3; outputs=$4; shift 4
while [ "$outputs" -gt 0 ]; do
    if [ -e "$1" ] || [ -L "$1" ]; then rm -rf -- "$1"; fi
    shift
    outputs=$((outputs - 1))
done
for name; do
    waited=0
    until [ -e "$name" ]; do
        if [ "$waited" -ge "$seconds" ]; then
            echo "$name is not there after $seconds s (--latency-wait)" >&2
            exit 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
done
exec "$shell" -c "$command"
"""
_THREADS = (
    "OMP_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Variables that Snakemake sets for a job's commands."""


def command(
    workflow: Any, job: Any, variables: Dict[str, str]
) -> Optional[Tuple[List[str], Dict[str, str]]]:
    """The command of a job and its variables; ``None`` if Snakemake is needed for it on
    the node."""
    if not _is_shell_alone(workflow, job):
        return None
    text = " ".join((shell._get_process_prefix(), job.shellcmd, shell._process_suffix)).strip()
    files = [str(file) for file in (*job.output, *job.input)]
    length = len(text.encode()) + sum(len(file.encode()) + 1 for file in files)
    if NOT_EVALUATED in text or length > COMMAND_BYTES_MAX:
        return None
    seconds = str(int(workflow.execution_settings.latency_wait))
    how = [seconds, shell.get_executable() or "/bin/sh", text, str(len(job.output))]
    argv = ["/bin/sh", "-c", _RUN, "sh", *how, *files]
    threads = dict.fromkeys(_THREADS, str(job.threads))
    return argv, {**threads, **variables}


async def prepare(job: Any) -> None:
    """Does what Snakemake does before it runs such a job."""
    await job.check_protected_output()
    await job.remove_existing_output()
    for file in (*job.output, *job.log):
        file.prepare()


def _is_shell_alone(workflow: Any, job: Any) -> bool:
    if job.is_group() or not job.is_shell or job.is_norun:
        return False
    rule = job.rule
    if job.is_shadow or job.benchmark is not None or rule.cache.output:
        return False
    if workflow.deployment_settings.deployment_method:
        # Environments and containers, if any, are made where the job runs.
        return False
    if not SharedFSUsage.all() <= set(workflow.storage_settings.shared_fs_usage):
        return False
    for file in (*job.input, *job.output, *job.log):
        if file.is_storage:
            return False
    if any(is_flagged(file, flag) for file in job.output for flag in WHOLE_FILES):
        return False
    if any(is_flagged(file, flag) for file in job.input for flag in ("pipe", "service")):
        return False
    if "shell_exec" in rule.resources:
        return False
    # The node's own, unless a rule says where.
    folder = rule.resources.get("tmpdir")
    return folder is None or folder.raw == "system_tmpdir"

