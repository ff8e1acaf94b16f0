#!/usr/bin/env bash
# The demo: builds Falkon and the stacking program, makes up a survey of the
# sky, and finds in it what no single image shows. Everything it writes is in
# target/demo, which it begins anew each time.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Numbers have a point, whatever the language.
export LC_ALL=C

target=${CARGO_TARGET_DIR:-$PWD/target}
sky=$target/demo
slots=$(nproc)
# The programs' names are long, and what is to be typed should be seen.
falkon=$target/release/falkon
stacking=$target/release/stacking

step=0
begun=$EPOCHREALTIME
seconds_since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }
step() {
    step=$((step + 1))
    step_begun=$EPOCHREALTIME
    printf '\n[%d/5] %s\n' "$step" "$1"
}
done_in() { printf '      done in %s s\n' "$(seconds_since "$step_begun")"; }
trap 'echo "demo: step $step failed" >&2' ERR

echo "Falkon demo: a faint source, in hundreds of images, by one task per image and object"

step "building falkon and the stacking program (a few minutes the first time)"
cargo build --release --locked -p falkon-cli -p falkon-stacking
done_in

step "making up the survey: stacking generate"
rm -rf "$sky"
"$stacking" generate "$sky" | sed 's/^/      /'
done_in

step "running the tasks on $slots cores: falkon run --tasks tasks.jsonl --out out"
echo "      each cut-out is a process of its own; the stack waits for all of them"
run_begun=$EPOCHREALTIME
"$falkon" run --jobs "$slots" --tasks "$sky/tasks.jsonl" --out "$sky/out"
run_ended=$EPOCHREALTIME
done_in

step "the result, as the last task printed it"
sed 's/^/      /' "$sky/out/stdout"
echo
echo "      picture: $sky/stack.png (one frame, and stacks of more and more)"
# Times are seconds since 1970: `started` and `ended` of each task, `queued` of
# the first and `delivered` of the last.
awk -v slots="$slots" '
    function time(name) {
        match($0, "\"" name "\":[0-9.]+")
        return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
    }
    NR == 1 { first = time("queued") }
    {
        ran = time("ended") - time("started"); sum += ran; last = ran
        if (time("queued") < first) first = time("queued")
        if (time("delivered") > end) end = time("delivered")
    }
    END {
        wall = end - first; all = wall * slots; alone = last * (slots - 1)
        printf "      %d tasks in %.2f s on %d cores (%.0f tasks/s): a task took %.1f ms on average\n",
            NR, wall, slots, NR / wall, sum / NR * 1000
        printf "      nothing to do beside the last task: %.0f %% of the cores\047 time\n", 100 * alone / all
    }' "$sky/out/results.jsonl"
done_in

step "the same in one process, for comparison: stacking serial"
serial_begun=$EPOCHREALTIME
"$stacking" serial "$sky" | grep 'same bytes' | sed 's/^/      /'
awk -v a="$run_begun" -v b="$run_ended" -v c="$serial_begun" -v d="$EPOCHREALTIME" -v slots="$slots" 'BEGIN {
    printf "      %.2f s with falkon run on %d cores, %.2f s in one process\n", b - a, slots, d - c
    printf "      share of the cores\047 time that was overhead: %.0f %%\n", 100 * (1 - (d - c) / ((b - a) * slots))
}'
cmp "$sky/stack.fits" "$sky/serial/stack.fits"
done_in

printf '\ndemo: all is well, in %s s\n' "$(seconds_since "$begun")"
