/* exec_fuzz.c - what of the preload library reads foreign bytes in the program's own process, under libFuzzer: the head of a
 * program that is about to be executed (ELF, interpreter lines), and the environment that it is to get.
 *
 * `make fuzz` builds it with clang. What it does not call is not there: only exec.c, environment.c, elf.c and misc_format.c are compiled in.
 */
#include "process/elf.c"
#include "process/misc_format.c"
#include "process/environment.c"
#include "process/exec.c"

__thread union mm_call mm_call;
__thread int mm_holding;
__thread uint64_t mm_deferred;
__thread struct mm_tried mm_tried[3];

#include <sys/mman.h>

long mm_open_spare(int dir, const char *path, int flags, int mode) { return sys_openat(dir, path, flags, mode); }
void mm_close_spare(int fd) { sys_close(fd); }

static void a_program(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("program", 0);
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    struct mm_program found;
    const char *why = mm_why_not(fd, &found);
    if ((why && strlen(why) > 4096) || strlen(found.interpreter) > 255 || strlen(found.loader) > 255)
        abort();
}

/* The pieces between zeros are variables; both ways to change them leave the others as they were. */
static void an_environment(const uint8_t *data, size_t size)
{
    static char text[1 << 16], *list[1 << 12];
    size_t count = 0, length;
    memcpy(text, data, size);
    text[size] = 0;
    for (char *p = text; p <= text + size && count < 4000; p += strlen(p) + 1)
        list[count++] = p;
    list[count] = NULL;
    mm_leads_here(list);
    mm_says_leave(list);
    for (int way = 0; way < 2; way++) {
        struct mm_exec image = { .envp = list };
        way ? mm_put_back(&image, list) : mm_strip(&image, list);
        size_t found = 0;
        for (char *const *each = image.envp; *each; each++)
            found += strlen(*each) > 0;
        if (way == 1 && image.made && !mm_ours_in(preload_of(image.envp), &length))
            abort();
        if (image.made)
            munmap(image.made, image.bytes);
        if (found > count + SAVED + 4)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mm_library = "/somewhere/" LIBRARY;
    if (size < 1 || size > 60000)
        return 0;
    data[0] & 1 ? an_environment(data + 1, size - 1) : a_program(data + 1, size - 1);
    return 0;
}
