# needs: tar gzip bzip2 xz zip unzip cpio
# check: [ ! -e all.tar ] || tar -tf all.tar > /dev/null
# check: for f in *.gz; do [ ! -e "$f" ] || gzip -t "$f" || exit 1; done
# check: [ ! -e all.zip ] || unzip -tq all.zip
set -e
export TZ=UTC
mkdir tree; for n in $(seq 30); do seq $n 900 > tree/f$n; done
ln tree/f1 tree/h1; ln -s f2 tree/s2; truncate -s 1M tree/sparse
find tree -exec touch -h -d @1700000000 {} +
tar --sort=name -cf all.tar tree
mark
tar --sort=name -rf all.tar tree/f3; tar --delete -f all.tar tree/f4
tar --sort=name -cf - tree | gzip -n > inc.tar.gz
gzip -n < all.tar > all.tar.gz; bzip2 -k all.tar; find tree -exec touch -h -d @1700000000 {} +; xz -k -T1 all.tar
find tree -print0 | LC_ALL=C sort -0z | cpio --quiet -0 -o -H newc > all.cpio
zip -qXr all.zip tree
mark
rm -r tree
tar -xf all.tar; tar -df all.tar tree | head -3
mkdir out; (cd out; cpio --quiet -idm < ../all.cpio; unzip -qo ../all.zip)
gunzip -kf all.tar.gz; echo 'one more' > tree/new; touch -d @1700000000 tree/new; zip -qX all.zip tree/new; zip -qd all.zip tree/f7

mark
gzip -nf tree/f9; gzip -n tree/f10; tar --sort=name -uf all.tar tree; rm -r out; xz -dkf all.tar.xz
tar -tf all.tar | sort | uniq -c | sort -rn | head -5
