#!/bin/sh
# Fine-tunes on demonstrations, then goes on with GRPO from there, for so many steps more.
# usage, with `podium up` running: examples/sft_then_grpo.sh ID JOB_FILE STEPS ROWS…
# ROWS are what `podium sft` learns from, files or a job's own best episodes:
#   python examples/email_demonstrations.py 24 > demonstrations.jsonl
#   examples/sft_then_grpo.sh email examples/email_search.yaml 6 demonstrations.jsonl
#   examples/sft_then_grpo.sh game examples/tic_tac_toe.yaml 20 --from-job JOB --best 0.2
set -eu
here=$(dirname "$0")
id=$1 file=$2 steps=$3
shift 3

podium sft -f "$here/sft.yaml" --id "$id-sft" "$@"
version=$(podium job get "$id-sft" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["completed_steps"])')
# Steps are counted on from the version that is forked.
podium job submit -f "$file" --id "$id-grpo" --follow \
    --set fork.model="$id-sft" --set fork.version="$version" \
    --set training.steps=$((version + steps))
