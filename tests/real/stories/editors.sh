# needs: ed sed perl vi sponge
# volatile: .*.sw?
set -e
seq 1 400 | sed 's/$/ line of text/' > text; cp text other; cp text third; ln -s third via
mark
printf '%s\n' '10,20d' '/^50 /s/text/ED/' '$a' 'the end' . 'g/99/m0' w q | ed -s text
sed -i.bak -e '5d' -e 's/^1/one/' other; sed -i 's/2/two/g' other third; sed -i --follow-symlinks '7,9d' via
mark
perl -pi -e 's/line/perl/ if $. % 3' text; perl -i.orig -ne 'print unless /7/' third; perl -ni -e 'print' other
vi -u NONE -N -e -s -c '%s/text/vim/' -c 'set backup backupext=.v' -c '1,5d' -c wq text < /dev/null
vi -u NONE -N -e -s -c 'set backupcopy=yes' -c '$d' -c 'wq' third < /dev/null
mark
sort -r text | sponge text; head -n 40 other | sponge -a other; grep -v two other | sponge other || true
printf 'put\n' | ed -s text 2>/dev/null || true
awk '{ print > ("part" NR % 3) } END { close("part0"); print "z" >> "part0" }' text
split -l 100 text chunk.; csplit -s -z other '/50/' '{3}' || true; cat chunk.* | cmp - text
tac text > /dev/full 2> full.err || echo full
mark
paste -d, part0 part1 | tee pasted | wc -l; truncate -s 100 text; patch -s third <(diff third via) || true
cat text
