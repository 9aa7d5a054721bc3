#!/bin/sh
# exec_fuzz.sh SECONDS: builds exec_fuzz.c with clang's libFuzzer, AddressSanitizer and UBSan, and runs it (make fuzz).
set -eu
cd "$(dirname "$0")/../.."
command -v clang >/dev/null || { echo "exec: clang is not installed (tools/prepare installs it as root)"; exit 0; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
flags="-g -O1 -w -D_GNU_SOURCE -fno-pie -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined"
clang $flags -Ishim_c/include -Ishim_c/src -c tests/fuzz/exec_fuzz.c -o "$made/fuzz.o"
# what is not called is not linked: the rest of the library would take the fuzzer's own calls for a program's
nm -u "$made/fuzz.o" | awk '$2 ~ /^(mm_|own_)/ { print "void " $2 "(void) { __builtin_trap(); }" }' >"$made/stubs.c"
clang $flags -no-pie "$made/fuzz.o" "$made/stubs.c" -o "$made/fuzz"
cp -r tests/fuzz/corpus/exec "$made/corpus"
echo exec
"$made/fuzz" -max_total_time="$1" -max_len=8192 -print_final_stats=1 -artifact_prefix=/tmp/ "$made/corpus" >"$made/said" 2>&1 \
  && grep number_of_executed_units "$made/said" || { tail -30 "$made/said"; exit 1; }
