#!/bin/sh
# Fine-tunes on the best fifth of a tic-tac-toe job's own episodes, then goes on with GRPO from there.
# usage, with `podium up` running: examples/sft_then_grpo.sh JOB
set -eu
here=$(dirname "$0")
job=$1

podium sft -f "$here/sft.yaml" --from-job "$job" --best 0.2 --id "$job-sft"
version=$(podium job show "$job-sft" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["completed_steps"])')
# Steps are counted on from the version that is forked.
podium job submit -f "$here/tic_tac_toe.yaml" --id "$job-grpo" --follow \
    --set fork.model="$job-sft" --set fork.version="$version" \
    --set training.steps=$((version + 20))
