# needs: cmake ninja gcc dpkg-deb ar gdbmtool convert identify mogrify gs
# volatile: build/* *.deb *.pdf *.png
# check: [ ! -e build/build.ninja ] || (cd build && ninja -n | tail -1)
# check: for f in *.deb; do [ ! -s "$f" ] || dpkg-deb -c "$f" | awk '{print $1, $6}' || exit 1; done
# check: for f in *.png *.pgm; do [ ! -e "$f" ] || identify -format '%w %h\n' "$f" || exit 1; done
# check: [ ! -e table ] || { cp table t2; echo count | gdbmtool -q t2; rm t2; }
set -e
export TZ=UTC SOURCE_DATE_EPOCH=1000000000
printf 'cmake_minimum_required(VERSION 3.5)\nproject(p C)\nadd_library(l STATIC a.c b.c)\nadd_executable(p m.c)\ntarget_link_libraries(p l)\n' > CMakeLists.txt
for f in a b; do echo "int $f(void) { return 1; }" > $f.c; done
echo 'int a(void), b(void); int main(void) { return a() + b(); }' > m.c
touch -d @1000000000 *.c CMakeLists.txt
cmake -G Ninja -S . -B build > log 2>&1; tail -1 log | cut -c1-30; rm log; ninja -C build | tail -1 | sed 's/.*Linking/Linking/'; build/p || echo $?
printf 'store one 1\nstore two 2\n' | gdbmtool -q --newdb table
convert -size 60x40 gradient:red-blue picture.pgm; convert picture.pgm picture.png
mark
echo 'int a(void) { return 40; }' > a.c; touch -d @2000000000 a.c; ninja -C build | tail -1 | sed 's/.*Linking/Linking/'; build/p || echo $?
(for i in $(seq 1 300); do echo "store key$i value$i"; done; echo 'delete one'; echo reorganize) | gdbmtool -q table; echo count | gdbmtool -q table
mkdir -p root/DEBIAN root/usr/bin; cp build/p root/usr/bin; printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: p\n' > root/DEBIAN/control
chmod -R go-w root; dpkg-deb --root-owner-group -b root p.deb > log; rm log; dpkg-deb -x p.deb taken; cmp root/usr/bin/p taken/usr/bin/p
mark
mogrify -rotate 90 -negate picture.pgm; identify -format '%w %h\n' picture.pgm
printf '%%!PS\n/Helvetica findfont 20 scalefont setfont 72 72 moveto (words) show showpage\n' > page.ps
gs -q -dNOPAUSE -dBATCH -sDEVICE=pgmraw -r20 -sOutputFile=page%d.pgm page.ps; cksum page1.pgm
rm -r taken; ninja -C build -t clean > log; rm log; ar rc library.a a.c b.c; ar d library.a a.c; ar t library.a
mark
(for i in $(seq 1 250); do echo "delete key$i"; done) | gdbmtool -q table; echo count | gdbmtool -q table; rm page.ps
