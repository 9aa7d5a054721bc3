/* The driver's operations on mappings: slots that stay, whatever becomes of the descriptor. */
#include "driver.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define OP(name) static void op_##name(int count, char **word)
#define UNUSED ((void)count)
#define MAP (&maps[number(word[1])])

static struct { char *at; size_t length; } maps[SLOTS_MAX];
static int map_count;

static int protection(const char *word) { return !strcmp(word, "rw") ? PROT_READ | PROT_WRITE : PROT_READ; }

OP(map) /* descriptor, length, r or rw, shared or private, offset: a slot */
{
    UNUSED;
    char *at = mmap(NULL, size_of(word[2]), protection(word[3]), !strcmp(word[4], "shared") ? MAP_SHARED : MAP_PRIVATE,
                    (int)number(word[1]), number(word[5]));
    if (at == MAP_FAILED) {
        reply_number(-1);
        return;
    }
    maps[map_count].at = at;
    maps[map_count].length = size_of(word[2]);
    reply_number(map_count++);
}
OP(peek) { UNUSED; reply_bytes(number(word[2]), MAP->at + number(word[3])); }
OP(writemap) /* descriptor, slot, length, offset: what lies there is written at the file's beginning */
{
    UNUSED;
    reply_number(pwrite(number(word[1]), maps[number(word[2])].at + number(word[4]), size_of(word[3]), 0));
}
OP(poke) /* slot, length, offset, seed */
{
    UNUSED;
    make_bytes(number(word[4]), size_of(word[2]), MAP->at + number(word[3]));
    reply_number(0);
}
OP(childpoke) /* the same by a child that ends at once */
{
    UNUSED;
    pid_t pid = fork();
    if (pid == 0) {
        make_bytes(number(word[4]), size_of(word[2]), MAP->at + number(word[3]));
        _exit(0);
    }
    int status = -1;
    reply_number(waitpid(pid, &status, 0) == pid ? status : -1);
}
OP(msync) { UNUSED; reply_number(msync(MAP->at, MAP->length, MS_SYNC)); }
OP(unmap) /* slot, length, offset */
{
    UNUSED;
    reply_number(munmap(MAP->at + number(word[3]), size_of(word[2])));
}
OP(remap) /* slot, new length: it may move */
{
    UNUSED;
    char *to = mremap(MAP->at, MAP->length, size_of(word[2]), MREMAP_MAYMOVE);
    if (to != MAP_FAILED) {
        MAP->at = to;
        MAP->length = size_of(word[2]);
    }
    reply_number(to == MAP_FAILED ? -1 : 0);
}
OP(protect) { UNUSED; reply_number(mprotect(MAP->at, MAP->length, protection(word[2]))); }
OP(punch) /* slot, length, offset */
{
    UNUSED;
    reply_number(madvise(MAP->at + number(word[3]), size_of(word[2]), MADV_REMOVE));
}

const struct entry map_operations[] = {
    {"map", 5, op_map}, {"peek", 3, op_peek}, {"writemap", 4, op_writemap}, {"poke", 4, op_poke}, {"childpoke", 4, op_childpoke},
    {"msync", 1, op_msync}, {"unmap", 3, op_unmap}, {"remap", 2, op_remap}, {"protect", 2, op_protect},
    {"punch", 3, op_punch}, {0, 0, 0}};
