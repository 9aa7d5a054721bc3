#!/bin/sh
# exec_fuzz.sh SECONDS [TARGET...]: builds the fuzzers of C (exec_fuzz.c, area_fuzz.c) with clang's libFuzzer,
# AddressSanitizer and UBSan, and runs each (make fuzz).
set -eu
cd "$(dirname "$0")/../.."
seconds=$1
shift
command -v clang >/dev/null || { echo "C: clang is not installed (tools/prepare installs it as root)"; exit 0; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
flags="-g -O1 -w -D_GNU_SOURCE -fno-pie -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined"
for name in ${*:-exec area}; do
  clang $flags -Ishim_c/include -Ishim_c/src -c "tests/fuzz/${name}_fuzz.c" -o "$made/fuzz.o"
  # what is not called is not linked: the rest of the library would take the fuzzer's own calls for a program's
  nm -u "$made/fuzz.o" | awk '$2 ~ /^(mm_|own_)/ { print "void " $2 "(void) { __builtin_trap(); }" }' >"$made/stubs.c"
  clang $flags -no-pie "$made/fuzz.o" "$made/stubs.c" -o "$made/fuzz"
  cp -r "tests/fuzz/corpus/$name" "$made/corpus.$name"
  echo "$name"
  "$made/fuzz" "-max_total_time=$seconds" -max_len=8192 -print_final_stats=1 -artifact_prefix=/tmp/ \
    "$made/corpus.$name" >"$made/said" 2>&1 && grep number_of_executed_units "$made/said" || { tail -30 "$made/said"; exit 1; }
done
