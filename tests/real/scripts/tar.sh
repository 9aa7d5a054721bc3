# needs tar gzip
set -e
mkdir -p src/deep/er && for n in 1 2 3 4 5; do seq $((n * 1000)) > src/deep/er/$n; done
ln -s deep/er/1 src/soft && ln src/deep/er/2 src/hard
dd if=/dev/zero of=src/sparse bs=1k seek=300 count=1 status=none
tar --sort=name --mtime=@0 --owner=0 --group=0 -cf all.tar src
tar -tf all.tar && mkdir out && tar -xf all.tar -C out && diff -r src out/src && echo equal
tar --mtime=@0 --owner=0 --group=0 -rf all.tar src/soft
tar -czf - -C src deep | tar -tzf - | sort
cp -a src copy && rm -rf src && mv out/src src && tar -xf all.tar && rm -rf out
