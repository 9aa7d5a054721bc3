/* file_size.c - how long a file is: as the kernel knows it, or as the run does. */
#include "engine/engine.h"

long mm_size(struct mm_pif *p, int fd)
{
    if (p->flags & MM_VIRTUAL)
        return (long)p->size;
    struct stat st;
    long r = sys(SYS_fstat, fd, &st);
    return r < 0 ? r : st.st_size;
}
