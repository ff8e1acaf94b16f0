#!/usr/bin/env bash
# Sorts lines with `sort`, in parts: each part is split into ranges of keys and
# sorted, then each range is merged from all parts. Parts go from task to task
# through executors' caches.
#
#   examples/sort/run.sh [LINES [PARTS]]     default: 1000000 lines in 8 parts
#
# FALKON    the program [target/release/falkon]
# OUT       where everything is written, begun anew each time [target/sort]
# SLOTS     tasks at a time [one per core]
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C
trap 'echo "sort: failed" >&2' ERR

lines=${1:-1000000}
parts=${2:-8}
slots=${SLOTS:-$(nproc)}
out=${OUT:-target/sort}
falkon=$(realpath "${FALKON:-target/release/falkon}")
rm -rf "$out"
mkdir -p "$out"
cd "$out"

# Lines of 40 letters and their number, the same each time.
awk -v lines="$lines" 'BEGIN {
    srand(1)
    for (i = 1; i <= lines; i++) {
        line = ""
        for (j = 0; j < 5; j++) line = line sprintf("%08x", int(rand() * 4294967295))
        print line, i
    }
}' >input
split --number=l/"$parts" --numeric-suffixes --suffix-length=4 input part.

# Where ranges begin, from a sample: as many ranges as parts.
awk 'NR % 101 == 1 { print $1 }' input | sort |
    awk -v parts="$parts" '{ key[NR] = $0 }
        END { for (i = 1; i < parts; i++) print key[int(i * NR / parts) + 1] }' >begins

# A part's lines, each to the file of its range, and each file sorted.
cat >scatter.sh <<'SCRIPT'
export LC_ALL=C
awk 'NR == FNR { begin[++n] = $1; next }
    { range = 0; while (range < n && $1 >= begin[range + 1]) range++; print > ("unsorted." range) }' begins part
for range in $(seq 0 $(wc -l <begins)); do
    touch unsorted.$range
    sort -o range.$range unsorted.$range
done
SCRIPT

ranges=$(($(wc -l <begins) + 1))
for part in part.*; do
    outputs=$(for ((r = 0; r < ranges; r++)); do printf '"range.%d=cache:%s.%d",' "$r" "$part" "$r"; done)
    printf '{"id": "scatter-%s", "command": ["sh", "-e", "scatter.sh"], "inputs": ["part=%s", "begins=begins", "scatter.sh=scatter.sh"], "outputs": [%s]}\n' \
        "$part" "$part" "${outputs%,}"
done >tasks.jsonl
for ((r = 0; r < ranges; r++)); do
    inputs=$(for part in part.*; do printf '"%s=cache:%s.%d",' "$part" "$part" "$r"; done)
    printf '{"id": "merge-%d", "shell": true, "command": "sort -m part.* > merged", "inputs": [%s], "outputs": ["merged=sorted.%04d"]}\n' \
        "$r" "${inputs%,}" "$r"
done >>tasks.jsonl

begun=$EPOCHREALTIME
"$falkon" run --quiet --jobs "$slots" --env LC_ALL=C --tasks tasks.jsonl --out results
ended=$EPOCHREALTIME
cat sorted.* >output
serial=$EPOCHREALTIME
sort --parallel=1 -o expected input
compared=$EPOCHREALTIME
awk -v a="$begun" -v b="$ended" -v c="$serial" -v d="$compared" -v slots="$slots" \
    'BEGIN { printf "%.2f s with %d tasks at a time, %.2f s with one sort\n", b - a, slots, d - c }'
cmp output expected
echo "both wrote the same bytes: $lines lines"
awk -v a="$begun" -v b="$ended" -v c="$serial" -v d="$compared" -v slots="$slots" \
    'BEGIN { printf "share of the slots\047 time that was overhead: %.0f %%\n", 100 * (1 - (d - c) / ((b - a) * slots)) }'
