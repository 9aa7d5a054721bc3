# needs: sort comm join
set -e
mkdir tmp; export TMPDIR=$PWD/tmp LC_ALL=C
awk 'BEGIN { for (i = 0; i < 60000; i++) print (i * 7919) % 60013, i }' > numbers
sort -n -S 100k -T tmp numbers > sorted; sort -c -n sorted
mark
sort -rn -S 200k --parallel=2 --batch-size=3 -T tmp -o numbers numbers; head -2 numbers
sort -u -k1,1n -S 100k -T tmp --compress-program=gzip numbers | md5sum
mark
sort -m <(head -100 sorted) <(tail -100 sorted) > merged 2> /dev/null || true
join <(sort -k1,1 sorted) <(sort -k1,1 numbers) | wc -l; comm -12 <(sort sorted) <(sort numbers) | wc -l
sort -S 50k -T tmp numbers | tee all | split -n r/4 - part.; wc -l part.* | tail -1
mark
cat part.* | sort -n -S 100k -T tmp | cmp - sorted; ls -A tmp | wc -l; shuf --random-source=sorted sorted -o shuffled; md5sum shuffled
