#!/usr/bin/env python3
"""Builds what a release gives away, into target/packages (`make dist`).

A program that runs on every Linux with glibc 2.17 or newer (RHEL 7, Debian 8),
a tarball and a Debian package of it, a wheel and a source distribution for
pip, its debug lines, a list of all that is in it (CycloneDX), checksums.

The tools come from PyPI and crates.io, pinned here, into target/dist-tools.
Needs cargo, binutils and python3; dpkg-deb for the Debian package.
"""

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile

import layout

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target" / "dist-tools"
GLIBC = (2, 17)
PROGRAM_BYTES_MAX = 20 << 20
WHEEL_BYTES_MAX = 10 << 20
PYPI = ["maturin==1.16.0", "cargo-zigbuild==0.24.0", "ziglang==0.17.1", "auditwheel==6.8.2", "wheel==0.48.0"]
CYCLONEDX = "0.5.9"
# What Debian calls the machines that Rust names so.
DEBIAN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class Failure(Exception):
    """Something that the reader of the message can mend."""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--machine", choices=sorted(DEBIAN_MACHINES), default=os.uname().machine)
    arguments.add_argument("--out", type=pathlib.Path, default=ROOT / "target" / "packages")
    chosen = arguments.parse_args()
    try:
        build(chosen.machine, chosen.out.resolve())
    except Failure as failure:
        sys.exit(f"make dist: {failure}")


def build(machine, out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    install_tools()
    version = json.loads(run("cargo", "metadata", "--no-deps", "--format-version=1"))["packages"][0]["version"]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        stem = f"falkon-{version}-{machine}-linux"
        wheel = build_wheel(machine, scratch)
        program = divide(wheel, scratch, out / f"{stem}.debug.gz")
        check_program(program)
        # The pages and completions are those of a program of this machine.
        speaker = program if machine == os.uname().machine else None
        tree = layout.install(ROOT, program, speaker, licences(), scratch / "tree")
        say("tarball")
        pack(tree, out / f"{stem}.tar.gz", stem)
        debian_package(tree, version, machine, out)
        pack_wheel(wheel, out)
        say("source distribution")
        run("maturin", "sdist", "--out", out)
    say("list of components")
    components(out / f"falkon-{version}.cdx.json")
    sums(out)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")


def install_tools():
    say(f"tools, in {TOOLS.relative_to(ROOT)}")
    if not (TOOLS / "bin" / "python").exists():
        venv.create(TOOLS, with_pip=True)
    # Others find cargo-zigbuild and auditwheel by name.
    os.environ["PATH"] = f"{TOOLS / 'bin'}:{os.environ['PATH']}"
    run("pip", "install", "--quiet", "--disable-pip-version-check", *PYPI)


def target_of(machine):
    return f"{machine}-unknown-linux-gnu"


def build_wheel(machine, scratch):
    """The wheel, unpacked; the other packages have the program that is in it."""
    target = target_of(machine)
    say(f"program and wheel for {target}, glibc {GLIBC[0]}.{GLIBC[1]}: some ten minutes")
    libraries = pathlib.Path(run("rustc", "--print", "target-libdir", "--target", target).strip())
    if not libraries.is_dir():
        raise Failure(f"the Rust toolchain has no libraries for {target}: rustup target add {target}")
    run(
        *("maturin", "build", "--locked", "--profile", "dist", "--zig", "--compatibility", "manylinux2014"),
        *("--target", target, "--out", scratch / "wheels"),
        shown=True,
    )
    (built,) = (scratch / "wheels").glob("*.whl")
    tree = scratch / built.name
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tree)
    return tree


def divide(wheel, scratch, debug):
    """Strips the program of the wheel, and returns it. Its debug lines go to `debug`, and it names their file."""
    (place,) = wheel.glob("*.data/scripts/falkon")
    program = scratch / "falkon"
    lines = scratch / "falkon.debug"
    run("objcopy", "--only-keep-debug", place, lines)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={lines}", place, program)
    with lines.open("rb") as source, gzip.GzipFile(debug, "wb", mtime=0) as packed:
        shutil.copyfileobj(source, packed)
    shutil.copyfile(program, place)
    place.chmod(0o755)
    return program


def check_program(program):
    """Refuses a program that needs a newer C library or another one, or that is too large."""
    needs = run("objdump", "-T", program)
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", needs)}
    if max(versions) > GLIBC:
        raise Failure(f"the program needs glibc {'.'.join(map(str, max(versions)))}")
    libraries = set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", program)))
    foreign = {name for name in libraries if not re.match(r"(lib(c|m|dl|rt|pthread|util)|ld-linux[\w-]*)\.so", name)}
    if foreign:
        raise Failure(f"the program needs other libraries than the C library's: {', '.join(sorted(foreign))}")
    size = program.stat().st_size
    if size > PROGRAM_BYTES_MAX:
        raise Failure(f"the program has {size:,} bytes, more than {PROGRAM_BYTES_MAX:,}")
    newest = ".".join(map(str, max(versions)))
    print(f"   {size:,} bytes, needs glibc {newest} and {', '.join(sorted(libraries))}")


def licences():
    """The licence texts of everything that is linked into the program, by package."""
    texts = {}
    for package in linked():
        folder = pathlib.Path(package["manifest_path"]).parent
        found = sorted(path for path in folder.iterdir() if re.match(r"(?i)(licen[cs]e|copying|notice|unlicense)", path.name))
        title = f"{package['name']} {package['version']} ({package['license']})"
        texts[title] = [path.read_text(errors="replace") for path in found if path.is_file()]
    # The library that draws charts is a file in the program, not a package.
    texts["uPlot 1.6.32 (MIT)"] = [(ROOT / "crates/cli/src/charts/uplot/LICENSE").read_text()]
    return texts


def linked():
    """The packages that the program is made of, apart from its own."""
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version=1"))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [key for key, package in packages.items() if package["name"] == "falkon-cli"]
    seen = set()
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        todo += [
            dependency["pkg"]
            for dependency in nodes[key]["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        ]
    return sorted((packages[key] for key in seen if packages[key]["source"]), key=lambda package: package["name"])


def pack(tree, path, top):
    """A tarball that is the same whenever it is built from the same files."""

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = commit_time()
        return member

    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(tree, arcname=top, filter=plain)


def commit_time():
    """When these sources were made: nothing that is built is newer."""
    with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
        return int(run("git", "log", "-1", "--format=%ct"))
    return 0


def debian_package(tree, version, machine, out):
    if not shutil.which("dpkg-deb"):
        print("   no Debian package: this machine has no dpkg-deb")
        return
    say("Debian package")
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        layout.debian(ROOT, tree, root, version, DEBIAN_MACHINES[machine])
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(commit_time())}
        run("dpkg-deb", "--root-owner-group", "--build", root, out, environment=environment)


def pack_wheel(wheel, out):
    say("wheel")
    run("python", "-m", "wheel", "pack", wheel, "--dest-dir", out)
    path = out / wheel.name
    if path.stat().st_size > WHEEL_BYTES_MAX:
        raise Failure(f"the wheel has {path.stat().st_size:,} bytes, more than {WHEEL_BYTES_MAX:,}")
    shown = run("auditwheel", "show", path)
    if "manylinux_2_17" not in shown:
        raise Failure(f"auditwheel finds no manylinux2014 wheel:\n{shown}")


def components(path):
    tool = TOOLS / "bin" / "cargo-cyclonedx"
    if not tool.exists():
        run("cargo", "install", "--quiet", "--locked", "--root", TOOLS, f"cargo-cyclonedx@{CYCLONEDX}")
    manifest = ROOT / "crates" / "cli" / "Cargo.toml"
    # It writes beside each package's manifest.
    name = "falkon-components"
    run(tool, "cyclonedx", "--manifest-path", manifest, "--format", "json", "--override-filename", name)
    packages = json.loads(run("cargo", "metadata", "--no-deps", "--format-version=1"))["packages"]
    for package in packages:
        written = pathlib.Path(package["manifest_path"]).with_name(f"{name}.json")
        if package["name"] == "falkon-cli":
            shutil.copyfile(written, path)
        written.unlink(missing_ok=True)


def sums(out):
    lines = []
    for path in sorted(out.iterdir()):
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    (out / "SHA256SUMS").write_text("".join(lines))


def say(what):
    print(f"== {what}", flush=True)


def run(*command, shown=False, environment=None):
    """What a command prints. If `shown`, its messages are seen as it runs."""
    command = [str(word) for word in command]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=None if shown else subprocess.PIPE
    )
    if done.returncode:
        raise Failure(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
