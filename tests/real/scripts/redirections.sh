# needs bash
(echo a; echo b >&2; echo c) > out 2> err
echo more >> out; { echo x; echo y; } >> out
exec 5> five; echo one >&5; echo two >&5; exec 5>&-
exec 6<> six; echo 123456789 >&6; exec 6<&-
exec 7< out; read first <&7; read second <&7; echo "$first $second"; exec 7<&-
cat > here <<END
here $first
END
cat <<'END' | tr a-z A-Z >> here
quoted $first
END
while read line; do echo "$line" >> copy; done < out
set -C; echo no > out || echo kept; set +C; echo over >| out
> empty; : >> empty; cp out out2; mv out2 out3; ln -s out3 link; cat link
dd if=here of=here2 bs=3 skip=1 status=none
dd if=/dev/zero of=out bs=1 seek=3 count=2 conv=notrunc status=none
for i in 1 2 3; do (echo $i >> loop) & wait; done; cat loop
printf 'abc' > trunc; truncate -s 1 trunc; truncate -s 5000 trunc; wc -c < trunc
trap 'echo bye > bye' EXIT
test -s empty || rm empty; exit 6
