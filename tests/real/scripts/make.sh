# needs gcc make ar
cat > Makefile <<'END'
CFLAGS = -O1 -g0
OBJECTS = a.o b.o c.o
all: program test.out
program: $(OBJECTS)
	$(CC) -o $@ $^
lib.a: $(OBJECTS)
	ar rcsD $@ $^
test.out: program lib.a
	./program > $@
	./program more >> $@
clean:
	rm -f *.o program lib.a
END
cat > a.c <<'END'
#include <stdio.h>
int b(int);
int c(int);
int main(int n, char **w) { printf("%s %d %d\n", n > 1 ? w[1] : "", b(n), c(n)); return 0; }
END
for f in b c; do echo "int $f(int x) { return x * $(printf %d "'$f"); }" > $f.c; done
make -s -j2 && make -s && touch b.c && make -s && make -s clean && make -s -j2 && cat test.out
