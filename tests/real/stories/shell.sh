# bash with every kind of redirection
echo one > a; echo two >> a; cat < a
cat <<END > here
doc $((1 + 2)) $(echo sub)
END
cat <<-'END' >> here
	raw $x
	END
cat <<< "string $RANDOM_NOT" >> here
{ echo out; echo err >&2; } > both 2>&1; { echo out2; echo err2 >&2; } &> both2; { echo o3; echo e3 >&2; } &>> both2
{ echo swapped; echo stderr >&2; } 3>&1 1>&2 2>&3 3>&- 2> swap.err | cat > swap.out
ls /nonexistent-file 2> /dev/null || echo status $?
mark
exec 3<> rw; echo 0123456789 >&3; exec 3>&-; exec 3<> rw; read -N 3 -u 3 first; echo -n ABC >&3; exec 3>&-; cat rw
exec 4>> log; echo first >&4; exec 5>&4; echo second >&5; exec 4>&-; echo third >&5; exec 5>&-; cat log
exec {auto}> auto; echo "auto" >&$auto; mark; echo more >&$auto; exec {auto}>&-
exec 6< a 7> seven; while read -r line <&6; do echo "7:$line" >&7; done; exec 6<&- 7>&-
exec 8> moved; exec 9>&8-; echo via nine >&9; exec 9>&-; cat moved
set -o noclobber; echo no > a 2> clobber.err || echo refused; echo yes >| a; echo app >> a; set +o noclobber
diff <(sort here) <(sort -r here) > diff.out; tee >(cat > tee1) >(tr a-z A-Z > tee2) < here > tee3; wait; sleep 0.2
mark
coproc UP { while read -r line; do echo "${line^^}"; done; }
echo hello >&"${UP[1]}"; read -r answer <&"${UP[0]}"; echo "$answer" > coproc.out
eval "exec ${UP[1]}>&-"; wait "$UP_PID"
(echo sub >> log; exec > inner; echo inner; (echo deeper) >> log)
f() { echo function; } > function.out; f; f >> log
for i in 1 2 3; do echo $i; done > loop; while read -r i; do echo "w$i"; done < loop > loop2; if :; then echo if; fi >> loop
{ sleep 0.05; echo late; } >> log & { echo early; } >> early; wait
: > trunc; > trunc2; echo x > trunc; : > trunc; printf '%s' no newline > trunc2
echo "$(< loop)" > slurp; mapfile -t lines < loop2; echo "${lines[1]}"
exec 2>&1; cat a - < trunc2 > cat.out; echo append 1<> rw; cat rw
mark
seen='for fd in 0 1 2 3 4; do [ -e /proc/self/fd/$fd ] && all="$all $fd"; done; echo $all > "$0"; echo x > "$0.more"'
sh -c "$seen" no.0 0<&-; sh -c "$seen" no.1 >&-; sh -c "$seen" no.2 2>&-; sh -c "$seen" none <&- >&- 2>&-; cat no.? none
sh -c 'cat; echo status $?' <&- 2> cat.err; python3 -c 'import os; os.write(os.open("py", 65, 384), b"x")' <&-
mkfifo pipe; (echo through > pipe &); cat pipe > piped; rm pipe
yes | head -n 3000 | sort | uniq -c > counted; echo "${PIPESTATUS[*]}" > status
set -C; { echo x > a; } 2>/dev/null || echo kept
trap 'echo trapped > trap.out' EXIT
exec > last; echo to last; exit 7
