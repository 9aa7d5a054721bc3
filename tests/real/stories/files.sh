# needs: dd cp mv truncate fallocate
set -e
seq 1 30000 > old; cp --reflink=auto old copy; cp --sparse=always old sparse; cp -a old keep
dd if=/dev/zero of=zeros bs=4k count=40 status=none
mark
dd if=old of=old bs=1000 skip=3 seek=10 count=5 conv=notrunc status=none
dd if=old of=swab conv=swab,sync bs=512 status=none; dd if=old of=upper conv=ucase,notrunc,fsync bs=4096 status=none
dd if=old of=app oflag=append conv=notrunc status=none; dd if=old of=app oflag=append conv=notrunc count=3 status=none
dd if=/dev/zero of=holes conv=sparse bs=64k count=20 status=none; dd if=old of=nocreat conv=nocreat status=none 2>/dev/null || echo no
dd if=old of=excl conv=excl status=none; dd if=old of=excl conv=excl status=none 2>/dev/null || echo exists
dd if=zeros of=direct bs=4k count=8 iflag=fullblock oflag=dsync status=none
truncate -s 5000 copy; truncate -s +3000 copy; truncate -s %4096 copy; truncate -r zeros sparse
mark
fallocate -l 100000 room; fallocate -p -o 8192 -l 8192 old || true; fallocate -d zeros
mv old renamed; mv keep old; ln renamed linked; cp -f --remove-destination swab upper; cp -b --suffix=.b copy swab
install -m 700 copy installed; shred -u -n 1 -z app; mkdir -p d/e; mv renamed d/e/; mv d moved
cp -al moved hardlinked; cp -rs "$PWD/moved" symlinked
mark
echo z | dd of=moved/e/renamed bs=1 seek=77 conv=notrunc status=none
cmp linked moved/e/renamed && stat -c '%s %h %a' linked installed old copy zeros
rm -r symlinked hardlinked; rename() { mv "$1" "$2.x" && mv "$2" "$1" && mv "$2.x" "$2"; }; rename copy old
chmod 600 copy; touch -d @1600000000 copy; stat -c '%Y %a' copy
outside=$(mktemp -d /dev/shm/story.XXXXXX); trap 'rm -r $outside' EXIT
mv linked $outside/there; mv $outside/there back; cp moved/e/renamed $outside/x; cat $outside/x >> back
mark
mv -T moved moved2; cp --preserve=all back back2; cat back >> back2; tail -c 1000 back2 > t && mv t back2; rm -rf moved2/e
stat -c '%s %h' back back2
