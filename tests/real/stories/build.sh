# needs: gcc make ar
# check: make -q || test ! -e Makefile
set -e
for n in $(seq 12); do echo "int f$n(int x) { return x * $n + $(($n * 7 % 5)); }" > f$n.c; done
{ echo '#include <stdio.h>'; for n in $(seq 12); do echo "int f$n(int);"; done; echo 'int main(void) { int s = 0;'
  for n in $(seq 12); do echo "s += f$n($n);"; done; echo 'printf("%d\n", s); return 0; }'; } > main.c
cat > Makefile <<'END'
CFLAGS = -O1 -g0
OBJECTS = main.o $(patsubst %,f%.o,1 2 3 4 5 6 7 8 9 10 11 12)
result: program
	./program > $@
program: $(OBJECTS) lib.a
	$(CC) -o $@ $(OBJECTS)
lib.a: $(OBJECTS)
	ar rcsD $@ $^
%.o: %.c
	$(CC) $(CFLAGS) -MMD -c -o $@ $<
-include $(OBJECTS:.o=.d)
END
make -s -j2
mark
cat result
touch f3.c
make -n | sort
make -s -j2
mark
sed -i 's/x \*/x +/' f5.c
make -s -j2
cat result
mark
make -q && rm -f f*.o && make -s -j2 && cat result
