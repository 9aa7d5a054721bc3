# needs sort
set -e
seq 50000 | awk '{print ($1 * 7919) % 50021, $1}' > numbers
sort -n -S 200k -T . numbers > sorted && sort -c -n sorted && echo in order
sort -r -o numbers numbers && head -3 numbers && uniq -c sorted | tail -2
sed -i 's/^1/one/' sorted && split -l 9000 sorted part. && cat part.* | cmp - sorted && rm part.ab
shuf --random-source=numbers -n 5 sorted | wc -l
