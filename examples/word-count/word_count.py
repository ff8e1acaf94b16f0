"""Word count, with falkon.Executor: the words of Python's own library.

    word_count.py [FILES]        default: all of them, some 1,500

Each call counts the words of some files (map), the counts are added up here
(reduce). Then the same is done in this process alone, and both must be equal.
"""

import os
import sys
import sysconfig
import time
from collections import Counter

CHUNK_FILES = 8
"""Files that a call reads: enough to be more than the call itself."""


def count(paths):
    """The words of some files."""
    words = Counter()
    for path in paths:
        with open(path, "rb") as file:
            words.update(file.read().split())
    return words


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
        total = Counter()
        for words in executor.map(count, chunks, chunksize=1):
            total += words
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
