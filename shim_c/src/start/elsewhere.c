/* elsewhere.c - a process that has the environment of a job's run, on another machine than that run: there it becomes a run of the
 * job by itself (docs/adr/0058).
 *
 * It executes Python in its own place, as the same process; that begins the run, and executes in it what this process was: the
 * same file with the same arguments, as the kernel has them, not as a loader may have shifted them.
 *
 * METAMORI_ELSEWHERE: how often this has been done, one digit; the beginning of that machine's boot id; and what
 * metamori/runtime/job/elsewhere.py wrote for itself.  Read without a look at the run area: on another machine its bytes may
 * be old ones.
 */
#include "start/start.h"

#include <stdlib.h>

#define HOPS '9'                       /* a boot id that is another at each look must not make runs without end */
#define OURS 4                         /* words before the program's own */
#define MOST (8ul << 20)               /* more than the kernel takes for arguments */

static const char *elsewhere(void)
{
    const char *text = getenv("METAMORI_ELSEWHERE");
    uint64_t here = text ? mm_boot() : 0, there = 0;
    if (!here || text[0] < '0' || text[0] >= HOPS || strlen(text) < 11)
        return NULL;
    for (const char *p = text + 2; p < text + 10; p++)
        there = there << 4 | (uint64_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
    return here == there ? NULL : text;
}

static void *room(size_t size)
{
    long r = sys(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return r < 0 && r > -4096 ? NULL : (void *)r;
}

/* This process's own, behind room for OURS. */
static char **arguments(void)
{
    char *bytes = room(MOST);
    size_t have = 0, count = 0;
    long n = 0, fd = sys_openat(AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    while (fd >= 0 && bytes && have < MOST - 1 && (n = sys(SYS_read, fd, bytes + have, MOST - 1 - have)) > 0)
        have += (size_t)n;
    if (fd >= 0)
        sys_close((int)fd);
    if (!have || n < 0)
        return NULL;
    for (size_t i = 0; i < have; i++)
        count += !bytes[i];
    char **words = room((OURS + count + 1) * sizeof *words), **out = words + OURS;
    for (size_t i = 0; words && i < have; i += strlen(bytes + i) + 1)
        *out++ = bytes + i;
    return words;
}

int mm_become_run(void)
{
    static LARGE char file[4096], script[4096];      /* no stack of a page: a program's may be small */
    const char *python = mm_variable("METAMORI_PYTHON"), *folder = strrchr(mm_library, '/');
    if (LIKELY(!elsewhere()))
        return 0;
    long n = sys_readlink("/proc/self/exe", file, sizeof file - 1);
    char **words = n > 0 ? arguments() : NULL;
    if (!words || !python || !folder || (size_t)(folder - mm_library) > sizeof script - 30)
        return 1;
    strcpy((char *)mempcpy(script, mm_library, (size_t)(folder - mm_library)), "/elsewhere.py");
    words[0] = (char *)python;
    words[1] = "-P";                   /* the folder of the script is none of modules */
    words[2] = script;
    words[3] = file;
    struct mm_exec image = { .envp = environ };
    mm_strip(&image, environ);
    sys(SYS_execve, python, words, image.envp);
    return 1;
}
