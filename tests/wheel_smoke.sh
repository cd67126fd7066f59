#!/usr/bin/env bash
# Builds the wheel, installs it with what it asks for into an empty environment, and uses it there: an attack, an
# evaluation, and the demo up to its report. Prints sizes, and how long the way from the wheel to the report took.
# Usage: tests/wheel_smoke.sh [PYTHON]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
TIMEFORMAT='%R s, of that at work %U s and for the system %S s'
"${1:-python3}" -m venv "$place/environment"
cd "$place"  # outside the checkout, so that nothing of it is imported
bin=$place/environment/bin
"$bin/python" -m pip wheel --quiet --no-deps --wheel-dir dist "$root"
ls -l dist
echo "installing:"
time "$bin/python" -m pip install --quiet -c "$root/constraints.txt" dist/*.whl
du -sh "$place"/environment/lib/python3*/site-packages
"$bin/whorl" --version
"$bin/whorl" doctor
"$bin/whorl" attack ai-pgd --model mobilenet_v2 --limit 2 --steps 2 --out run
"$bin/whorl" evaluate samples run/adv/ai-pgd/mobilenet_v2 --model mobilenet_v2 --angles 0,30 --limit 2
echo "demo:"
time "$bin/whorl" demo --out demo
test -s demo/report.html
ls -l demo/report.html
