#!/bin/bash
# run.sh OUT SECONDS [NAME...]: measures the programs in turn, each in a process of its own, and packs
# what they wrote: OUT/jax_results.tar.gz (times, modules, profiles) and OUT/jax_dumps.tar.gz.
# LIMIT: seconds of one program.  ARGS: --tiny, --dumps.
cd "$(dirname "$0")" || exit 1
OUT=$(mkdir -p "$1" && cd "$1" && pwd); END=$(($(date +%s) + $2)); shift 2
[ $# -gt 0 ] || set -- dit gpt2_flax accumulate convnext moe_ragged vit_nnx t5_flax ssm gru_flax bert_eqx unet_flax gnn lora ppo mlp_f32
WORK=$(mktemp -d); R=$WORK/jax; mkdir -p "$R"
nvidia-smi >"$R/nvidia-smi.txt" 2>&1
nvidia-smi -q >>"$R/nvidia-smi.txt" 2>&1
python3 -m pip list 2>/dev/null | grep -iE "^(jax|flax|optax|equinox|nvidia|numpy)" >"$R/packages.txt" &
for name in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge ${AT_ONCE:-4} ]; do wait -n; done
    left=$((END - $(date +%s) - 12))
    [ $left -lt 10 ] && { echo "$name: no time" >>"$R/log.txt"; continue; }
    limit=${LIMIT:-110}; [ $left -lt $limit ] && limit=$left
    echo "$(date +%T) $name, at most $limit s" | tee -a "$R/log.txt"
    timeout -k 2 $limit python3 measure.py "$name" "$R" $ARGS >"$R/$name.log" 2>&1 || echo "$name: status $?" | tee -a "$R/log.txt" &
done
wait
rm -rf "$R/trace" "$R/lock"
for log in "$R"/*.log; do tail -c 3000 "$log" >"$log.end"; rm "$log"; done
mkdir -p "$R/dumps"
find "$R/dumps" -type f \( -name '*.ll' -o -name '*.ptx' -o -name '*.cubin' -o -name '*.dot' -o -name '*.html' -o -name '*.o' \) -delete
find "$R/dumps" -type f -size +12M -delete
tar czf "$OUT/jax_dumps.tar.gz" -C "$R" dumps
rm -rf "$R/dumps"
tar czf "$OUT/jax_results.tar.gz" -C "$WORK" jax
ls -l "$OUT"; cat "$R/log.txt"; for f in "$R"/*.json; do python3 -c "
import json,sys; d=json.load(open(sys.argv[1])); print(d['name'], d.get('compile_s'), d.get('median_s'), d.get('done'))" "$f"; done
rm -rf "$WORK"
