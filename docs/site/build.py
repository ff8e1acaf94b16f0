#!/usr/bin/env python3
"""Builds the site of the pages: `make docs`.

The pages lie where GitHub's readers look for them, so they are copied to
target/docs/pages with their folders, together with the files that they link to.
mkdocs-material builds target/docs/site from them; a link to a page, a file or a
heading that does not exist ends the build. The site works from the disk, its search
included, and loads nothing from elsewhere.

The first run installs mkdocs-material into target/docs/python from PyPI. Later runs
need no network.
"""

import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "docs/site"
BUILT = ROOT / "target/docs"
PAGES = ["*.md", "docs/*.md", "examples/*/README.md", "bench/README.md"]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# What makes a browser load something, as opposed to a link that a reader follows.
LOADED = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(?:https?:)?//[^"'\s>]+"""
                    r"""|<link[^>]*rel=["']?(?:stylesheet|preconnect|icon)[^>]*href=["']?(?:https?:)?//[^"'\s>]+""")


def interpreter():
    """A Python that can make an environment."""
    for candidate in (sys.executable, "/usr/bin/python3", "python3"):
        test = [candidate, "-c", "import venv, ensurepip"]
        if candidate and shutil.which(candidate) and subprocess.run(test, stderr=subprocess.DEVNULL).returncode == 0:
            return candidate
    sys.exit("make docs: no Python with venv and ensurepip is here: install python3-venv")


def mkdocs():
    """The program, of an environment with what requirements.txt asks for."""
    home, wanted = BUILT / "python", HERE / "requirements.txt"
    installed = home / "requirements.txt"
    if not installed.exists() or not filecmp.cmp(installed, wanted, shallow=False):
        print(f"installing mkdocs-material in {home.relative_to(ROOT)}", flush=True)
        subprocess.run([interpreter(), "-m", "venv", "--clear", home], check=True)
        pip = [home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", wanted]
        if subprocess.run(pip).returncode != 0:
            sys.exit("make docs: mkdocs-material could not be installed from PyPI, which the first run needs")
        shutil.copy(wanted, installed)
    return home / "bin/mkdocs"


def copy_pages():
    """Copies the pages, and the files that they link to."""
    copies = BUILT / "pages"
    shutil.rmtree(copies, ignore_errors=True)
    pages = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    linked = set()
    for page in pages:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            if path.is_file() and path.suffix != ".md" and path.is_relative_to(ROOT):
                linked.add(path)
    for path in [*pages, *sorted(linked)]:
        copy = copies / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for own in ("iframe-worker.js", "site.css"):
        shutil.copy(HERE / own, copies)
    return len(pages)


def check_that_nothing_is_loaded(site):
    """Fails if a page of the site needs a network."""
    found = [(page, loaded) for page in sorted(site.rglob("*.html"))
             for loaded in LOADED.findall(page.read_text(encoding="utf-8"))]
    for page, loaded in found:
        print(f"{page.relative_to(ROOT)}: loads from elsewhere: {loaded}", file=sys.stderr)
    if found:
        sys.exit("make docs: a page of the site needs a network")


def main():
    program = mkdocs()
    count = copy_pages()
    # Not --quiet: what is not printed is no fault to --strict.
    command = [program, "build", "--strict", "--clean", "--config-file", HERE / "mkdocs.yml"]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode != 0:
        sys.stderr.write(built.stdout)
        sys.exit("make docs: the pages have faults, see above")
    site = BUILT / "site"
    check_that_nothing_is_loaded(site)
    print(f"{count} pages: {site.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
