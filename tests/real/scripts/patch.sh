# needs patch diff
seq 200 > f && sed 's/5/five/' f > g && diff -u --label f --label g f g > p; patch -s f < p && cmp f g
rm p && patch --version | head -1
