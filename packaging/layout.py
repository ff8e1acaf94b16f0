"""Where the files of a release lie, in the tarball and in the Debian package."""

import gzip
import pathlib
import shutil
import subprocess

COMPLETIONS = {
    "bash": "bash-completion/completions/falkon",
    "zsh": "zsh/site-functions/_falkon",
    "fish": "fish/vendor_completions.d/falkon.fish",
}

CONTROL = """\
Package: falkon-tasks
Version: {version}
Architecture: {machine}
Maintainer: Falkon maintainers <root@localhost>
Installed-Size: {kibibytes}
Depends: libc6 (>= 2.17)
Conflicts: falkon
Section: science
Priority: optional
Description: very many short tasks on whatever machines there are
 A dispatcher, executors with caches, and collective input and output for
 programs and functions that are too many and too short for a batch scheduler.
 .
 The web browser of the package falkon has a program of the same name.
"""


def install(root, program, speaker, licences, tree):
    """A tree as below /usr/local: the program, its pages, units, licences, and files to deploy it.

    `speaker` is the program for this machine, which prints pages and completions.
    """
    put(program, tree / "bin" / "falkon", 0o755)
    if speaker is not None:
        pages = tree / "share" / "man" / "man1"
        pages.mkdir(parents=True)
        subprocess.run([speaker, "man", pages], check=True)
        for shell, place in COMPLETIONS.items():
            done = subprocess.run([speaker, "completions", shell], check=True, stdout=subprocess.PIPE)
            write(tree / "share" / place, done.stdout)
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        put(root / name, tree / "share" / "doc" / "falkon" / name)
    text = "".join(
        f"{'=' * 78}\n{title}\n\n" + "\n".join(texts) + "\n" for title, texts in licences.items()
    )
    write(tree / "share" / "doc" / "falkon" / "LICENSES-OF-DEPENDENCIES", text.encode())
    for folder in ("systemd", "container", "kubernetes", "apptainer", "grafana"):
        shutil.copytree(root / "packaging" / folder, tree / "share" / "falkon" / folder)
    return tree


def debian(root, tree, package, version, machine):
    """The root of a Debian package, from the tree of the tarball."""
    usr = package / "usr"
    shutil.copytree(tree, usr)
    document = usr / "share" / "doc" / "falkon-tasks"
    (usr / "share" / "doc" / "falkon").rename(document)
    licence = (document / "LICENSE").read_text()
    others = (document / "LICENSES-OF-DEPENDENCIES").read_text()
    write(document / "copyright", f"{licence}\n{others}".encode())
    (document / "LICENSE").unlink()
    (document / "LICENSES-OF-DEPENDENCIES").unlink()
    write(document / "changelog.gz", gzip.compress((document / "CHANGELOG.md").read_bytes(), mtime=0))
    (document / "CHANGELOG.md").unlink()
    for page in (usr / "share" / "man" / "man1").glob("*.1"):
        write(page.with_name(f"{page.name}.gz"), gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
    (usr / "share" / "zsh" / "vendor-completions").mkdir()
    site = usr / "share" / "zsh" / "site-functions"
    (site / "_falkon").rename(usr / "share" / "zsh" / "vendor-completions" / "_falkon")
    site.rmdir()
    units = usr / "share" / "falkon" / "systemd"
    (usr / "lib" / "systemd").mkdir(parents=True)
    for kind in ("system", "user"):
        (units / kind).rename(usr / "lib" / "systemd" / kind)
    units.rmdir()
    size = sum(path.stat().st_size for path in usr.rglob("*") if path.is_file())
    control = CONTROL.format(version=version, machine=machine, kibibytes=size // 1024)
    write(package / "DEBIAN" / "control", control.encode())


def put(source, target, mode=0o644):
    write(target, pathlib.Path(source).read_bytes())
    target.chmod(mode)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o644)
