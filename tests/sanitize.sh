#!/usr/bin/env bash
# Runs every CUDA kernel under NVIDIA's compute-sanitizer at small sizes, with a planted fault of each kind that must be found.
#
#   tests/sanitize.sh [-t SECONDS] [-s SAMPLE] [-b BINARY] [-o FOLDER] [TOOL...]
#
#   TOOL     memcheck, racecheck, initcheck, synccheck; default: all four in sequence
#   -t N     approximate seconds per tool (75, so that all four take 8 minutes); 0 runs to the end
#   -s N     runs all plans of one in N cases to the end, instead of each kernel once
#   -b FILE  the `it` test binary, from the project's folder; default: `cargo test --test it --no-run` builds and names it
#   -o DIR   folder for the tools' reports (target/sanitize)
#
# Needs an NVIDIA GPU, NVRTC, and compute-sanitizer on the PATH, in $CUDA_HOME/bin or /usr/local/cuda/bin. First the cases run
# without a tool, so that kernels are compiled and cached before a tool slows everything down. Then each tool checks every
# kernel once, in its smallest case, and reports progress. The last lines are a table; the status is 1 if a tool finds an
# error in our kernels, does not find the planted fault, or did not run.
#
# Limits: `Device::alloc` fills with zeros, so initcheck finds no read of unwritten device memory, except for memory from
# other allocators. Tensors share buffers, so memcheck finds only accesses outside a buffer (guard zones and poison in the
# cases find the rest). racecheck checks workgroup memory, not global memory.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '4,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
sample= seconds=75 binary= folder=target/sanitize
while getopts t:s:b:o: option; do
  case $option in
    t) seconds=$OPTARG ;;
    s) sample=$OPTARG ;;
    b) binary=$OPTARG ;;
    o) folder=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[[ $seconds$sample =~ ^[0-9]+$ ]] || usage
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
for tool in "${tools[@]}"; do
  case $tool in memcheck | racecheck | initcheck | synccheck) ;; *) usage ;; esac
done

sanitizer=
for place in compute-sanitizer "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" /usr/local/cuda/bin/compute-sanitizer; do
  if sanitizer=$(command -v "$place"); then break; fi
done
[ -n "$sanitizer" ] || { echo "sanitize.sh: compute-sanitizer is neither on the PATH nor in CUDA's bin" >&2; exit 1; }
if [ -z "$binary" ]; then
  binary=$(cargo test --test it --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
  [ -n "$binary" ] || { echo "sanitize.sh: the tests do not build" >&2; exit 1; }
fi
mkdir -p "$folder"
cases=(--exact on_gpu::sanitize::small_cases --nocapture)
export WARPLOOM_TEST_SANITIZE=${WARPLOOM_TEST_SANITIZE:-cuda:0} WARPLOOM_TEST_SANITIZE_SAMPLE=${sample:-0}
# How far a run came, while it runs.
progress() { tee "$1" | grep --line-buffered '^sanitize: '; }

echo "without a tool: $binary"
"$binary" "${cases[@]}" 2>&1 | progress "$folder/alone.log" \
  || { tail -n 20 "$folder/alone.log"; echo "sanitize.sh: the cases fail by themselves, see $folder/alone.log" >&2; exit 1; }

# Runs the remaining arguments under a tool; the report goes to the file, their output to FILE.out.
under() {
  local tool=$1 report=$2 more=()
  shift 2
  # The provider handles errors of driver calls, such as a refused allocation.
  [ "$tool" = memcheck ] && more=(--report-api-errors no)
  "$sanitizer" --tool "$tool" "${more[@]}" --error-exitcode 99 --print-limit 20 --log-file "$report" "$@" 2>&1 | progress "$report.out"
  return "${PIPESTATUS[0]}"
}

# Errors from the tool's last line; a dash if there is none.
errors() {
  sed -n -e 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
    -e 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$1" 2>/dev/null | tail -n 1 | grep . || echo -
}

# Kernels or cases done, and their total, from the test's last report.
reached() { sed -n 's/^sanitize: \([0-9]* of [0-9]* [a-z]*\).*/\1/p' "$1" 2>/dev/null | tail -n 1 | grep . || echo -; }

bad=0 table=$(printf '%-10s | %8s | %20s | %8s | %s' tool seconds 'looked at' errors 'planted fault')
trap 'echo "$table"; echo "sanitize.sh: interrupted" >&2; exit 130' INT TERM
for tool in "${tools[@]}"; do
  begin=$SECONDS
  echo "$tool:"
  WARPLOOM_TEST_SANITIZE_SECONDS=$seconds under "$tool" "$folder/$tool.log" "$binary" "${cases[@]}"
  status=$? took=$((SECONDS - begin)) found=$(errors "$folder/$tool.log") looked=$(reached "$folder/$tool.log.out")
  if [ "$status" -ne 0 ] || [ "$found" != 0 ]; then
    bad=1
    echo "$tool: status $status, $found errors; see $folder/$tool.log and $tool.log.out" >&2
    grep -m 5 '=========' "$folder/$tool.log" >&2
  fi
  WARPLOOM_PLANTED=$tool under "$tool" "$folder/planted_$tool.log" "$binary" --exact on_gpu::sanitize::planted_fault --nocapture
  status=$? planted='NOT FOUND'
  # The tool's own status for errors, in a report that names the kernel.
  if [ "$status" -eq 99 ] && grep -q planted "$folder/planted_$tool.log"; then planted=found; else bad=1; fi
  table+=$(printf '\n%-10s | %8s | %20s | %8s | %s' "$tool" "$took" "$looked" "$found" "$planted")
done
echo "$table"
exit $bad
