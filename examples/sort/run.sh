#!/usr/bin/env bash
# Sorts lines with `sort`, in parts: each part is split into ranges of keys and
# sorted, then each range is merged from all parts. What a part has for all
# ranges is one archive in its executor's cache, of which each merge reads its
# member.
#
#   examples/sort/run.sh [LINES [PARTS]]     default: 1000000 lines in 8 parts
#
# FALKON    the program [target/release/falkon]
# OUT       where everything is written, begun anew each time [target/sort]
# SLOTS     tasks at a time [one per core]
# NODES     executors, each with a cache of its own [1]
# CACHE     the size of each cache [half of the input in all, and 64 MiB, for each of several]
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C
trap 'echo "sort: failed" >&2' ERR

lines=${1:-1000000}
parts=${2:-8}
slots=${SLOTS:-$(nproc)}
nodes=${NODES:-1}
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
    {
        low = 0; high = n
        while (low < high) {
            middle = int((low + high + 1) / 2)
            if ($1 >= begin[middle]) low = middle; else high = middle - 1
        }
        print > ("unsorted." low)
    }' begins part
for range in $(seq 0 $(wc -l <begins)); do
    touch unsorted.$range
    sort -o ranges/$range unsorted.$range
    rm unsorted.$range
done
SCRIPT

ranges=$(($(wc -l <begins) + 1))
for part in part.*; do
    printf '{"id": "scatter-%s", "command": ["sh", "-e", "scatter.sh"], "inputs": ["part=%s", "begins=begins", "scatter.sh=scatter.sh"], "outputs": ["ranges/=cache:%s.zip"]}\n' \
        "$part" "$part" "$part"
done >tasks.jsonl
for ((r = 0; r < ranges; r++)); do
    inputs=$(for part in part.*; do printf '"%s=cache:%s.zip!%d",' "$part" "$part" "$r"; done)
    printf '{"id": "merge-%d", "shell": true, "command": "sort -m part.* > merged", "inputs": [%s], "outputs": ["merged=sorted.%04d"]}\n' \
        "$r" "${inputs%,}" "$r"
done >>tasks.jsonl

# Several executors, if asked for: no cache holds all parts.
started=()
cleanup() { for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done; wait; }
trap cleanup EXIT
if ((nodes > 1)); then
    cache=${CACHE:-$(($(stat -c %s input) / 2 + (64 << 20)))}
    "$falkon" start --dir dispatcher >dispatcher.log 2>&1 &
    started+=($!)
    until [[ -e dispatcher/access-executor.json ]]; do kill -0 "${started[0]}"; sleep 0.1; done
    for ((node = 0; node < nodes; node++)); do
        "$falkon" executor --access dispatcher/access-executor.json --name "node-$node" \
            --slots "$slots" --cache "cache-$node=$cache" >"node-$node.log" 2>&1 &
        started+=($!)
    done
    run=("$falkon" submit --wait --access dispatcher/access.json)
else
    run=("$falkon" run --jobs "$slots")
    [[ -z ${CACHE:-} ]] || run+=(--cache "cache=$CACHE")
fi

begun=$EPOCHREALTIME
"${run[@]}" --quiet --env LC_ALL=C --tasks tasks.jsonl --out results
ended=$EPOCHREALTIME
cat sorted.* >output
serial=$EPOCHREALTIME
sort --parallel=1 -o expected input
compared=$EPOCHREALTIME
slots=$((slots * nodes))
awk -v a="$begun" -v b="$ended" -v c="$serial" -v d="$compared" -v slots="$slots" \
    'BEGIN { printf "%.2f s with %d tasks at a time, %.2f s with one sort\n", b - a, slots, d - c }'
cmp output expected
echo "both wrote the same bytes: $lines lines"
awk -v a="$begun" -v b="$ended" -v c="$serial" -v d="$compared" -v slots="$slots" \
    'BEGIN { printf "share of the slots\047 time that was overhead: %.0f %%\n", 100 * (1 - (d - c) / ((b - a) * slots)) }'
