# needs: rsync
# check: [ ! -d copy ] || rsync -aHn --delete --checksum --itemize-changes source/ copy/ > /dev/null
set -e
mkdir -p source/deep/er
for n in 1 2 3 4 5; do seq 1 $((n * 4000)) > source/$n; seq 1 $n > source/deep/er/$n; done
ln source/1 source/hard; ln -s 2 source/soft; mkfifo source/pipe; chmod 640 source/3
truncate -s 3M source/sparse
mark
rsync -aH --no-specials source/ copy/
mark
seq 1 50 >> source/2; sed -i 3d source/4; rm source/5; mv source/3 source/three
printf 'XXXX' | dd of=source/sparse bs=1 seek=1000000 conv=notrunc status=none; touch -d @1700000000 source/sparse source/2 source/4
rsync -aH --no-specials --delete --inplace --no-whole-file source/ copy/
mark
rsync -aH --no-specials --delete --backup --backup-dir=../old --no-whole-file --partial source/ copy/
rsync -a --sparse --append-verify source/2 copy/2
rsync -a --link-dest="$PWD/copy" copy/ linked/
diff -r --no-dereference source copy | grep -v 'fifo' || true
mark
rm -rf linked old; rsync -a --remove-source-files copy/1 moved
