#!/bin/bash
# Random graphs and attentions × random plans × {AMX, AVX-512, AVX2, portable} × {1, 3 threads} against their meaning, with ever new
# seeds, for so many minutes: tests/random.sh [MINUTES=30] [FIRST_SEED=1]
# Says how many runs of how many cases there were; what disagreed is shown, with its seed, and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")"
minutes=${1:-30} seed=${2:-1} cases=40 runs=0 wrong=0
properties=(random_graphs_run_as_planned random_attentions_run_as_planned random_graphs_run_in_bf16 random_attentions_run_in_bf16)
binary=$(cargo test --release --test suites --no-run --message-format=json 2>/dev/null |
    grep '"name":"suites"' | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
end=$(($(date +%s) + 60 * minutes))
while [ "$(date +%s)" -lt "$end" ]; do
    for property in "${properties[@]}"; do
        left=$((end - $(date +%s)))
        [ "$left" -gt 0 ] || break
        status=0
        PROPTEST_CASES=$cases PROPTEST_RNG_SEED=$seed timeout "$left" "$binary" --exact "processor::$property" >"$log" 2>&1 || status=$?
        case $status in
        0) runs=$((runs + 1)) ;;
        124) ;; # the time was over
        *)
            wrong=$((wrong + 1))
            echo "$property disagrees with seed $seed:"
            tail -n 40 "$log"
            ;;
        esac
    done
    seed=$((seed + 1))
done
echo "$runs runs of $cases cases agree, $wrong do not"
[ "$wrong" -eq 0 ]
