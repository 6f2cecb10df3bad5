#!/usr/bin/env bash
# All that needs a GPU, in one go: kernels, speed, calibration of two models, live validation, and a report.
#
#   calibration/gpu_check.sh [OUT]                      on a GPU, about 8 minutes; the profiles are in OUT/
#   calibration/gpu_check.sh --device cpu --quick OUT   tries the script itself
#
# Wants torch, triton, numpy, scipy, pandas, pyarrow and pyyaml; whatever else is missing is installed from
# $WHEELS (a folder of wheels), without a network. Each part has its time limit and says how it ended; a part that
# fails does not keep the others from running. The exit code is the number of failed parts.
set -u -o pipefail
cd "$(dirname "$0")/.."
DEVICE=cuda QUICK="" OUT=out/gpu_check
while [ $# -gt 0 ]; do
  case "$1" in
    --device) DEVICE=$2; shift 2 ;;
    --quick) QUICK=--quick; shift ;;
    *) OUT=$1; shift ;;
  esac
done
mkdir -p "$OUT"
export PYTHONPATH=$PWD
if [ -z "${PYTHON:-}" ]; then if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi; fi
if [ -n "${WHEELS:-}" ]; then
  "$PYTHON" -m pip install --quiet --no-index --find-links "$WHEELS" \
    simpy pydantic typer rich quantiphy matplotlib pytest hypothesis || exit 1
fi

failed=0
part() { # NAME SECONDS COMMAND...: run it within the limit, its output in OUT/NAME.txt and here
  local name=$1 limit=$2 began=$SECONDS; shift 2
  echo "== $name"
  timeout "$limit" "$@" 2>&1 | tee "$OUT/$name.txt"
  local code=${PIPESTATUS[0]}
  echo "$name: exit $code after $((SECONDS - began)) s" | tee -a "$OUT/report.txt"
  [ "$code" -eq 0 ] || failed=$((failed + 1))
}


: > "$OUT/report.txt"
"$PYTHON" -c 'import torch; print("torch", torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")' \
  | tee -a "$OUT/report.txt"

if [ "$DEVICE" = cuda ]; then
  BASE=${BASE:-h200-sxm-141gb}
  part kernels 120 "$PYTHON" -m pytest -q -p no:cacheprovider -m gpu tests/calibration
  part speed 60 "$PYTHON" -m calibration.attention_speed --device cuda --model llama-3.1-8b
  for model in llama-3.1-8b llama-3.2-1b; do
    part "calibrate-$model" 150 "$PYTHON" -m simserve calibrate --device cuda --model "$model" --dtype bf16 \
      --base "$BASE" $QUICK --force -o "$OUT/$BASE-$model"
  done
  part live 120 "$PYTHON" -m simserve validate live --device cuda --profile "$OUT/$BASE-llama-3.1-8b" \
    --load 0.3,0.6,0.85 --requests 150 --repetitions 2 --force -o "$OUT/live"
  profiles="$BASE-llama-3.1-8b $BASE-llama-3.2-1b"
else
  part kernels 300 "$PYTHON" -m pytest -q -p no:cacheprovider tests/calibration/test_runner.py
  part speed 60 "$PYTHON" -m calibration.attention_speed --device cpu
  part calibrate-tiny-llama 300 "$PYTHON" -m simserve calibrate --device cpu $QUICK --bound 0.3 --force -o "$OUT/cpu"
  part live 300 "$PYTHON" -m simserve validate live --device cpu --profile "$OUT/cpu" --load 0.3,0.6,0.85 \
    --requests 12 --repetitions 2 --force -o "$OUT/live"
  profiles=cpu
fi
for profile in $profiles; do
  part "residuals-$profile" 60 "$PYTHON" -m calibration.residuals "$OUT/$profile" -o "$OUT/residuals-$profile"
done
echo "parts that failed: $failed" | tee -a "$OUT/report.txt"
exit "$failed"
