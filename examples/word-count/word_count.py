"""Word count, with falkon.Executor: the words of Python's own library.

    word_count.py [FILES]        default: all of them, some 1,500

Each call counts the words of some files and divides the counts among as many parts as there
are calls that add up (map); each of these reads its part of what every call has counted
(reduce). What a call leaves is one archive, of which each reader is given its member alone.
Then the same is done in this process alone, and both must be equal.
"""

import marshal
import os
import sys
import sysconfig
import time
import zipfile
from collections import Counter
from zlib import crc32

CHUNK_FILES = 64
"""Files that a call reads: enough to be more than the call itself."""

PARTS = 8
"""Calls that add up."""


def count(paths):
    """The words of some files."""
    words = Counter()
    for path in paths:
        with open(path, "rb") as file:
            words.update(file.read().split())
    return words


def divide(paths, archive):
    """Counts the words of some files, and writes each part's to a member of an archive."""
    parts = [{} for _ in range(PARTS)]
    for word, number in count(paths).items():
        parts[crc32(word) % PARTS][word] = number
    with zipfile.ZipFile(archive, "w") as members:
        for part, words in enumerate(parts):
            members.writestr(str(part), marshal.dumps(words))


def add(members):
    """The counts of one part, of all archives."""
    total = Counter()
    for member in members:
        with open(member, "rb") as file:
            total.update(marshal.load(file))
    return total


def main():
    found = []
    for folder, _, names in os.walk(sysconfig.get_path("stdlib")):
        if "site-packages" not in folder:
            found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    files = sorted(found)[: int(sys.argv[1]) if len(sys.argv) > 1 else None]
    chunks = [files[at : at + CHUNK_FILES] for at in range(0, len(files), CHUNK_FILES)]

    workers = os.cpu_count() or 1
    begin = time.perf_counter()
    # Falkon's import and start are in the clock.
    import falkon

    with falkon.Executor(max_workers=workers) as executor:
        archives = [falkon.File(suffix=".zip") for _ in chunks]
        for chunk, archive in zip(chunks, archives):
            executor.options(outputs=[archive]).submit(divide, chunk, archive)
        parts = [
            executor.submit(add, [archive.member(str(part)) for archive in archives])
            for part in range(PARTS)
        ]
        total = Counter()
        for part in parts:
            total.update(part.result())
    taken = time.perf_counter() - begin

    begin = time.perf_counter()
    alone = Counter()
    for chunk in chunks:
        alone += count(chunk)
    serial = time.perf_counter() - begin

    print("%d files, %d words, %d different" % (len(files), sum(total.values()), len(total)))
    for word, times in sorted(total.most_common(3), key=lambda item: (-item[1], item[0])):
        print("%8d %s" % (times, word.decode("utf-8", "replace")))
    print("%.2f s with %d workers, %.2f s in one process" % (taken, workers, serial))
    overhead = 1 - serial / (taken * workers)
    print("share of the workers' time that was overhead: %.0f %%" % (100 * overhead))
    if total != alone:
        sys.exit("word-count: the counts differ from those of one process")
    print("the counts are those of one process")


if __name__ == "__main__":
    main()
