/* shut_ways.c - whole paths on which a folder is shut to the user, who owns it: the program has come by another way, from the
 * folder that it is in or by a descriptor.  They are opened up for the moment, as a restore does it, by one call of the run at a time:
 * another would find them open, and shut when it goes on.
 */
#include "engine/engine.h"

typedef long by_path(const char *path, void *with);

static long way_opened(char *path, char *from, by_path *call, void *with)
{
    struct mm_opened_up o;
    long r = call(path, with);
    MM_STOP("way.asked");
    for (char *c = from; r == -EACCES && (c = strchr(c + 1, '/')) != NULL;) {
        *c = 0;
        int opened = mm_open_up(&o, path, O_DIRECTORY | O_NOFOLLOW, S_IXUSR);
        *c = '/';
        if (opened > 0) {
            r = way_opened(path, c, call, with);
            mm_shut_again(&o);
            break;
        }
    }
    return r;
}

/* What a call says of a whole path. */
long mm_way_opened(const char *path, by_path *call, void *with)
{
    long r = call(path, with);
    if (r != -EACCES || strlen(path) >= 4096)
        return r;
    SCRATCH(copy);
    strcpy(copy, path);
    uint64_t mask = defer_handlers();
    mm_lock(&mm_area->head->shut_ways_lock, MM_LOCK_SHUT_WAYS);
    r = way_opened(copy, copy, call, with);
    if (r == -EACCES)                  /* a folder that somebody was reading the attributes of may have been open just then */
        r = way_opened(copy, copy, call, with);
    mm_unlock(&mm_area->head->shut_ways_lock);
    deliver_handlers(mask);
    return r;
}

static long open_shut(const char *path, void *flags) { return mm_open_shut(path, *(int *)flags); }

/* What is shut itself, too. */
long mm_open_shut_way(const char *path, int flags) { return mm_way_opened(path, open_shut, &flags); }
