"""Graphs that WfCommons makes, run by ``falkon run --workflow`` (suites.sh).

Its generated tasks name programs that are not here, so each command is replaced
by one that reads the task's inputs, all of which must be there, and writes its
outputs. At the end every file must be there, with the hash that follows from
its task's inputs alone: so each task ran once, after those it depends on.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from wfcommons import BlastRecipe, BwaRecipe, EpigenomicsRecipe, GenomeRecipe, MontageRecipe
from wfcommons import SeismologyRecipe, SoykbRecipe, SrasearchRecipe, WorkflowGenerator

TASKS = 200
SCRIPT = """
sums=$(cat $1 </dev/null | sha256sum)
for name in $2; do echo "$name $sums" | sha256sum > "$name"; done
"""


def prepare(path, folder):
    """Makes the workflow one that can be run; returns its tasks."""
    document = json.loads(path.read_text())
    specification = document["workflow"]["specification"]
    tasks = {task["id"]: task for task in specification["tasks"]}
    made = {name for task in tasks.values() for name in task.get("outputFiles", [])}
    for task in document["workflow"]["execution"]["tasks"]:
        own = tasks[task["id"]]
        inputs, outputs = own.get("inputFiles", []), own.get("outputFiles", [])
        for name in set(inputs) - made:
            (folder / name).write_text(name)
        words = ["-c", SCRIPT, "sh", " ".join(inputs), " ".join(outputs)]
        task["command"] = {"program": "sh", "arguments": words}
    path.write_text(json.dumps(document))
    return list(tasks.values())


def check(tasks, folder):
    left = {task["id"]: task for task in tasks}
    known = {}
    while left:
        ready = [task for task in left.values() if not set(task["parents"]) & set(left)]
        for task in ready:
            inputs = b"".join(
                known.get(name) or (folder / name).read_bytes()
                for name in task.get("inputFiles", [])
            )
            sums = hashlib.sha256(inputs).hexdigest() + "  -"
            for name in task.get("outputFiles", []):
                text = "%s %s\n" % (name, sums)
                known[name] = (hashlib.sha256(text.encode()).hexdigest() + "  -\n").encode()
                assert (folder / name).read_bytes() == known[name], (task["id"], name)
            del left[task["id"]]


def main():
    recipes = (BlastRecipe, BwaRecipe, EpigenomicsRecipe, GenomeRecipe, MontageRecipe)
    recipes += (SeismologyRecipe, SoykbRecipe, SrasearchRecipe)
    ran = 0
    for recipe in recipes:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = folder / "workflow.json"
            workflow = WorkflowGenerator(recipe.from_num_tasks(TASKS)).build_workflow()
            workflow.write_json(path)
            tasks = prepare(path, folder)
            command = [os.environ["FALKON_BINARY"], "run", "--quiet", "--workflow", str(path)]
            subprocess.run(command, check=True)
            check(tasks, folder)
            print(recipe.__name__, len(tasks), "tasks", file=sys.stderr)
            ran += len(tasks)
    print("%d graphs, %d tasks, all files as they must be" % (len(recipes), ran))


if __name__ == "__main__":
    main()
