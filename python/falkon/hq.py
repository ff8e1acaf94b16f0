"""The commands of HyperQueue that Nextflow's executor ``hq`` calls, for Falkon.

``python -m falkon.hq install DIR`` writes a program ``hq`` to a folder. With that folder
first on the ``PATH``, Nextflow with ``process.executor = 'hq'`` submits its tasks to a
Falkon dispatcher: to that of ``FALKON_ACCESS``, or to the one that ``falkon start``
started without ``--dir``.

The program runs this file by itself: Nextflow starts it for each of its tasks, and
importing the package would take longer than submitting.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List, NoReturn, Sequence, Tuple

KEEP = "1h"
"""How long Falkon keeps a job that has ended: Nextflow knows it by its files."""
USAGE = (
    "this `hq` is Falkon's, for Nextflow; it has `hq submit --directives=file SCRIPT`, "
    "`hq job cancel ID,…` and `hq --output-mode=quiet job list --all`"
)
_WORD = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|(?:\\.|[^\s"\'\\])+')
"""A word of a directive, as Nextflow writes them: escapes count within double quotes too."""
_ESCAPE = re.compile(r"\\(.)")
# The output of a job is the file that Nextflow looks for.
_RUN = 'exec /bin/bash "$0" >"$1" 2>&1'


class Refused(Exception):
    """What is asked for cannot be done; the text is for people."""


def program() -> str:
    """Where ``falkon`` is."""
    beside = os.path.join(sysconfig.get_path("scripts"), "falkon")
    named = os.environ.get("FALKON_BINARY")
    found = named or (beside if os.access(beside, os.X_OK) else shutil.which("falkon"))
    if found is None:
        raise Refused("the program falkon is not there: put it on the PATH")
    return found


def directives(script: str) -> List[Tuple[str, str]]:
    """The options in the comments at the top of a script."""
    found = []
    with open(script, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                break
            if not line.startswith("#HQ "):
                continue
            words = [_plain(word) for word in _WORD.findall(line[4:])]
            while words:
                name, has_value, value = words.pop(0).partition("=")
                if not name.startswith("--"):
                    raise Refused("%s: `%s` is no option of hq" % (script, name))
                if not has_value:
                    if not words:
                        raise Refused("%s: %s lacks its value" % (script, name))
                    value = words.pop(0)
                found.append((name, value))
    return found


def _plain(word: str) -> str:
    if word.startswith("'"):
        return word[1:-1]
    return _ESCAPE.sub(r"\1", word[1:-1] if word.startswith('"') else word)


def options_of(script: str, given: Sequence[Tuple[str, str]]) -> Tuple[List[str], str]:
    """Options of ``falkon submit`` for directives, and the file of the job's output."""
    options: List[str] = []
    log = os.devnull
    for name, value in given:
        if name == "--stream":
            log = value
        elif name == "--resource":
            resource, _, count = value.partition("=")
            if resource == "mem":
                options += ["--memory", count + "MiB"]
            elif resource in ("gpus", "gpus/nvidia", "gpus/amd"):
                options += ["--gpus", count]
            else:
                options += ["--resource", value]
        elif name == "--time-limit":
            options += ["--timeout", value]
        elif name in ("--name", "--cwd", "--cpus", "--env", "--priority"):
            options += [name, value]
        else:
            raise Refused(
                "%s: Falkon has no option of hq's %s; there are --cpus, --cwd, --env, --name, "
                "--priority, --resource, --stream and --time-limit (clusterOptions)"
                % (script, name)
            )
    return options, log


def submit(words: Sequence[str]) -> str:
    """Submits a script; its number."""
    options = [word for word in words if word.startswith("-")]
    scripts = [word for word in words if not word.startswith("-")]
    if options != ["--directives=file"] or len(scripts) != 1:
        raise Refused(USAGE)
    script = os.path.abspath(scripts[0])
    found, log = options_of(script, directives(script))
    command = ["submit", "--keep", KEEP, *found, "--", "/bin/bash", "-c", _RUN, script, log]
    return falkon(*command).strip()


def cancel(words: Sequence[str]) -> None:
    """Cancels jobs, by their numbers."""
    failed = ""
    for job in ",".join(words).split(","):
        try:
            falkon("cancel", job)
        except Refused as error:
            # The others are cancelled all the same.
            failed = str(error)
    if failed:
        raise Refused(failed)


def state(instance: Dict[str, Any]) -> str:
    """The state of a job, in HyperQueue's words."""
    if instance["state"] == "complete":
        if instance["cancelled"]:
            return "CANCELED"
        return "FAILED" if instance["failed"] else "FINISHED"
    return "RUNNING" if instance["running"] or instance["staged"] else "WAITING"


def listed() -> str:
    """All jobs, a line each."""
    instances = json.loads(falkon("status", "--json"))["instances"]
    return "\n".join("%d %s" % (one["id"], state(one)) for one in instances)


def falkon(*words: str) -> str:
    """What the program prints."""
    ran = subprocess.run([program(), *words], stdin=subprocess.DEVNULL, capture_output=True)
    if ran.returncode:
        raise Refused(ran.stderr.decode(errors="replace").strip() or "falkon failed")
    return ran.stdout.decode()


def install(words: Sequence[str]) -> str:
    """Writes the program ``hq`` to a folder; where it is."""
    if len(words) != 1:
        raise Refused("python -m falkon.hq install DIR")
    os.makedirs(words[0], exist_ok=True)
    path = os.path.join(os.path.abspath(words[0]), "hq")
    draft = path + ".draft"
    program = (_quoted(sys.executable), _quoted(os.path.abspath(__file__)))
    with open(draft, "w") as file:
        file.write('#!/bin/sh\nexec %s -I %s "$@"\n' % program)
    os.chmod(draft, 0o755)
    os.replace(draft, path)
    return path


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def answer(words: List[str]) -> str:
    """What a command of ``hq`` prints."""
    words = [word for word in words if not word.startswith("--output-mode")]
    if words[:1] == ["submit"]:
        return submit(words[1:])
    if words[:2] == ["job", "cancel"] and len(words) > 2:
        cancel(words[2:])
        return ""
    if words[:2] == ["job", "list"]:
        return listed()
    if words[:1] == ["install"]:
        return install(words[1:])
    raise Refused(USAGE)


def main() -> NoReturn:
    try:
        text = answer(sys.argv[1:])
    except (OSError, Refused) as error:
        print("error: %s" % error, file=sys.stderr)
        sys.exit(1)
    if text:
        print(text)
    sys.exit(0)


if __name__ == "__main__":
    main()
