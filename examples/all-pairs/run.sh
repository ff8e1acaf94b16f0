#!/usr/bin/env bash
# All pairs of this project's own source files, compared by Falkon and, for
# comparison, in one process.
#
#   examples/all-pairs/run.sh [FILES]     default: 32 files, so 1,024 tasks
#
# FALKON    the program [target/release/falkon, built if it is not there]
# OUT       where everything is written, begun anew each time [target/all-pairs]
# SLOTS     tasks at a time [one per core]
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C
trap 'echo "all-pairs: failed" >&2' ERR

files=${1:-32}
slots=${SLOTS:-$(nproc)}
out=${OUT:-target/all-pairs}
if ! [[ $files =~ ^[1-9][0-9]*$ ]]; then
    echo "all-pairs: FILES must be a number from 1 on, not '$files'" >&2
    exit 2
fi
# The interpreter itself: what is called python3 may be a script that looks for it.
if ! python=$(python3 -c 'import lzma, sys; print(sys.executable)'); then
    echo "all-pairs: python3 with the module lzma is needed" >&2
    exit 2
fi
if [ -z "${FALKON:-}" ]; then
    cargo build --quiet --release --locked -p falkon-cli
fi
falkon=$(realpath "${FALKON:-${CARGO_TARGET_DIR:-target}/release/falkon}")

# Evenly chosen among the files of 4 to 32 KiB, each under a name that says where
# it was from.
rm -rf "$out"
mkdir -p "$out/items"
find crates docs examples tidy -type f \( -name '*.rs' -o -name '*.md' -o -name '*.py' \) \
    -size +4k -size -32k | sort >"$out/candidates"
awk -v want="$files" '{ name[NR] = $0 }
    END { n = want < NR ? want : NR; for (i = 0; i < n; i++) print name[int(i * NR / n) + 1] }' \
    "$out/candidates" | while read -r path; do
    cp "$path" "$out/items/${path//\//-}"
done
cp examples/all-pairs/all_pairs.py "$out"
cd "$out"

# The program is an input too: nothing but Python need be where the tasks run.
begun=$EPOCHREALTIME
"$falkon" run --jobs "$slots" --each 'items/*' --each 'items/*' --out results \
    --input all_pairs.py=all_pairs.py --input 'left/{1/}={1}' --input 'right/{2/}={2}' \
    -- "$python" -IS all_pairs.py compare 'left/{1/}' 'right/{2/}'
ended=$EPOCHREALTIME
# Each line says which pair it is of; they stand in the order in which tasks ended.
sort results/stdout >matrix.tsv

serial=$EPOCHREALTIME
"$python" -IS all_pairs.py serial items/* | sort >serial.tsv
compared=$EPOCHREALTIME
cmp matrix.tsv serial.tsv
echo "both wrote the same bytes: $out/matrix.tsv"
"$python" -IS all_pairs.py check matrix.tsv
"$python" -IS all_pairs.py times results/results.jsonl
awk -v a="$begun" -v b="$ended" -v c="$serial" -v d="$compared" -v slots="$slots" 'BEGIN {
    printf "%.2f s with %d tasks at a time, %.2f s in one process, which starts Python once\n", b - a, slots, d - c
    printf "share of the slots\047 time that was overhead: %.0f %%\n", 100 * (1 - (d - c) / ((b - a) * slots))
}'
