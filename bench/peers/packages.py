"""Peers from PyPI, each in an environment of its own below PEERS_HOME
[~/.cache/falkon-peers], and programs of Debian's."""

import os
import pathlib
import shutil
import subprocess
import sys


class LeftOut(Exception):
    """Why a peer cannot be measured here."""


def home():
    return pathlib.Path(os.environ.get("PEERS_HOME") or pathlib.Path.home() / ".cache/falkon-peers")


def python(name, *more):
    """The interpreter of an environment that is called as the module, which is
    installed with others if it is not there."""
    modules = [name, *more]
    place = home() / name
    interpreter = place / "bin/python"
    if not interpreter.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        if _said([sys.executable, "-m", "venv", place])[0] != 0:
            raise LeftOut(f"{name} (no virtual environment can be made; is python3-venv there?)")
    if _said([interpreter, "-c", "import " + ", ".join(modules)])[0] != 0:
        status, said = _said([interpreter, "-m", "pip", "install", "-q", *modules])
        if status != 0:
            why = [line for line in said.splitlines() if line.startswith("ERROR")]
            raise LeftOut(f"{name} cannot be installed ({(why or ['pip failed'])[0]})")
    return interpreter


def program(name, package):
    """The path of a program, whose package root on Debian installs if it is not there."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _said(["apt-get", "install", "-qq", "-y", "--no-install-recommends", package], environment)
    found = shutil.which(name)
    if found is None:
        raise LeftOut(f"{name} is not there (package {package} of Debian)")
    return found


def version(interpreter, package):
    """Of an installed package."""
    command = f"import importlib.metadata; print(importlib.metadata.version('{package}'))"
    return _said([interpreter, "-c", command])[1].strip()


def _said(words, environment=None):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=environment)
    return done.returncode, done.stdout
