#!/usr/bin/env python3
"""Installs and uses what `make dist` built (`make test-dist`).

With --files: checks only the files that are given away as they are (units of
systemd, manifests of Kubernetes, the release workflow), and builds nothing.
What cannot be checked here is said on a line that begins with `skipped: `.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
DIST = ROOT / "target" / "packages"
# The oldest and the newest Debian that its mirrors have.
SUITES = ["bullseye", "trixie"]
KUBERNETES = "1.33"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
passed = 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--files", action="store_true", help="only files that are given away as they are")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        check("units of systemd", units, scratch / "units")
        check("manifests of Kubernetes", manifests, scratch / "kubernetes")
        if not chosen.files:
            check("release workflow", workflow, scratch / "go")
            if not DIST.is_dir():
                sys.exit("make test-dist: target/packages is missing: make dist builds it")
            check("checksums", checksums)
            check("tarball", tarball, scratch / "tarball")
            check("wheel", wheel, scratch / "wheel")
            for suite in SUITES:
                check(f"Debian package in {suite}", debian, suite, scratch / suite)
    print(f"{passed} passed, 0 failed")


class Skipped(Exception):
    """Why a check cannot run on this machine."""


def check(name, function, *arguments):
    global passed
    try:
        function(*arguments)
    except Skipped as skipped:
        print(f"skipped: {name} ({skipped})")
        return
    except subprocess.CalledProcessError as error:
        said = ((error.stdout or "") + (error.stderr or "")).strip()
        sys.exit(f"{name}: {' '.join(map(str, error.cmd))} exited with {error.returncode}\n{said}")
    passed += 1
    print(f"ok: {name}", flush=True)


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), check=True, text=True, capture_output=True, **options)
    return done.stdout


def expect(text, part):
    if part not in text:
        sys.exit(f"{part!r} was expected in\n{text}")


def units(scratch):
    if not shutil.which("systemd-analyze"):
        raise Skipped("no systemd-analyze")
    scratch.mkdir()
    # The program that they start must be there; any will do.
    paths = []
    for path in sorted(PACKAGING.glob("systemd/*/*.service")):
        # An instance of a template has a name.
        copy = scratch / path.name.replace("@.", "@daemon.")
        copy = copy.with_stem(f"{path.parent.name}-{copy.stem}")
        copy.write_text(path.read_text().replace("/usr/bin/falkon", "/bin/true"))
        paths.append(copy)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths], text=True, capture_output=True
    )
    said = done.stdout + done.stderr
    if done.returncode or said.strip():
        sys.exit(f"systemd-analyze verify: exit status {done.returncode}\n{said}")


def manifests(scratch):
    python = scratch / "bin" / "python"
    venv.create(scratch, with_pip=True)
    try:
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "kubernetes-validate==1.37.0")
    except subprocess.CalledProcessError as error:
        raise Skipped("kubernetes-validate cannot be installed") from error
    for path in sorted(PACKAGING.glob("kubernetes/*.yaml")):
        run(scratch / "bin" / "kubernetes-validate", "--strict", "-k", KUBERNETES, path)


def workflow(scratch):
    if not shutil.which("go"):
        raise Skipped("no Go, with which actionlint is built")
    environment = os.environ | {"GOBIN": str(scratch), "GOFLAGS": "-mod=mod"}
    run("go", "install", ACTIONLINT, env=environment)
    run(scratch / "actionlint", *sorted((ROOT / ".github" / "workflows").glob("*.yml")))


def checksums():
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)


def only(pattern):
    found = list(DIST.glob(pattern))
    if len(found) != 1:
        sys.exit(f"one {pattern} was expected in {DIST}, not {len(found)}")
    return found[0]


def tarball(scratch):
    with tarfile.open(only("falkon-*-linux.tar.gz")) as archive:
        archive.extractall(scratch, filter="data")
    (tree,) = scratch.iterdir()
    use(tree / "bin" / "falkon", scratch)
    expect((tree / "share/man/man1/falkon-run.1").read_text(), "falkon\\-run")
    run("bash", "-n", tree / "share/bash-completion/completions/falkon")
    expect((tree / "share/doc/falkon/LICENSES-OF-DEPENDENCIES").read_text(), "tokio ")


def use(program, scratch):
    """A run, and services with a task through them."""
    expect(run(program, "run", "--range", "1-3", "--", "echo", "n"), "n 3")
    environment = os.environ | {"HOME": str(scratch), "FALKON_CONFIG": ""}
    environment.pop("XDG_STATE_HOME", None)
    call = lambda *words: run(program, *words, env=environment, cwd=scratch)
    call("start", "--background")
    try:
        call("executor", "--background", "--idle-exit", "1m", "--give-up", "1s")
        expect(call("submit", "--wait", "--", "echo", "there"), "there")
    finally:
        call("stop")


def wheel(scratch):
    venv.create(scratch, with_pip=True)
    run(scratch / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", only("falkon-*.whl"))
    text = "import falkon\nwith falkon.Executor() as executor: print(sum(executor.map(abs, range(-9, 0))))"
    script = scratch / "first.py"
    script.write_text(text)
    expect(run(scratch / "bin" / "python", script), "45")
    use(scratch / "bin" / "falkon", scratch)


def debian(suite, scratch):
    if os.getuid() != 0:
        raise Skipped("only root can enter another root")
    if not shutil.which("debootstrap"):
        raise Skipped("no debootstrap")
    try:
        run("debootstrap", "--variant=minbase", suite, scratch)
    except subprocess.CalledProcessError as error:
        raise Skipped(f"debootstrap failed: {error.stdout.strip().splitlines()[-1:]}") from error
    package = only("falkon-tasks_*.deb")
    shutil.copy(package, scratch / "tmp")
    run("mount", "-t", "proc", "proc", scratch / "proc")
    try:
        enter = ("chroot", scratch)
        run(*enter, "dpkg", "--install", f"/tmp/{package.name}")
        expect(run(*enter, "falkon", "run", "--range", "1-3", "--", "echo", "n"), "n 3")
        expect(run(*enter, "sh", "-c", "HOME=/tmp falkon start --background 2>&1 && HOME=/tmp falkon stop"), "")
        run(*enter, "dpkg", "--remove", "falkon-tasks")
    finally:
        run("umount", "--lazy", scratch / "proc")


if __name__ == "__main__":
    main()
