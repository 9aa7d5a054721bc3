/* known_folders.c - folders whose path was found not long ago, so that the next name in one of them costs one look.
 *
 * Only those that were meant by their own path: no link on the way, no "..".  Such a text means the folder of that identity by
 * that path until somebody moves it: calls of the run that do count in ways_changed, as a restore inside the program does.
 * Nobody waits here: who finds an entry being written, or none, asks the kernel.
 */
#include "names/names.h"

#define KNOWN 16
#define TEXT 232

static struct known {
    uint32_t version;                  /* odd while it is written */
    uint32_t ways;
    uint64_t dev, ino;
    char path[TEXT];
} known[KNOWN];

/* The folder that the process is in.  0 or -errno. */
int mm_present_folder(char *out, size_t room)
{
    long n = sys(SYS_getcwd, out, room);
    MM_STOP("paths.found");
    return n < 0 ? (int)n : out[0] == '/' ? 0 : -ENOENT;      /* "(unreachable)" from a root that is not above it */
}

static struct known *known_at(const char *path) { return &known[(mm_mixed(1, path, strlen(path)) >> 32) % KNOWN]; }

/* The text of a path from the root, in `out`, of a folder's name that ends in a slash; 0 when it cannot be its own path. */
static int spelled(int dir, const char *folder, char *out)
{
    size_t at = 0;
    if (dir != AT_FDCWD && folder[0] != '/')
        return 0;
    if (folder[0] != '/') {
        if (mm_present_folder(out, TEXT))
            return 0;
        at = strlen(out);
        at -= at == 1;
    }
    for (const char *end; *folder; folder = end) {
        folder += *folder == '/';
        end = strchrnul(folder, '/');
        size_t n = (size_t)(end - folder);
        if (n == 0 && !*end)
            break;
        if (n == 0 || (folder[0] == '.' && (n == 1 || (n == 2 && folder[1] == '.'))) || at + n + 2 > TEXT)
            return 0;
        out[at++] = '/';
        memcpy(out + at, folder, n);
        at += n;
    }
    out[at] = 0;
    return at > 0;
}

static int is_that(const char *path, uint64_t dev, uint64_t ino)
{
    struct stat st;
    return sys(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* Into out, where it is known.  text: what mm_folder_is_known is told afterwards; empty where that is of no use. */
int mm_known_folder(int dir, const char *folder, char *text, char *out)
{
    text[0] = 0;
    if (UNLIKELY(mm_elsewhere) || !spelled(dir, folder, text)) {
        text[0] = 0;
        return 0;
    }
    struct known *k = known_at(text);
    uint32_t version = __atomic_load_n(&k->version, __ATOMIC_ACQUIRE);
    uint64_t dev = k->dev, ino = k->ino;
    int found = !(version & 1) && ino && k->ways == mm_ways() && strncmp(k->path, text, TEXT) == 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (!found || __atomic_load_n(&k->version, __ATOMIC_RELAXED) != version || !is_that(text, dev, ino))
        return 0;
    strcpy(out, text);
    return 1;
}

/* fd: the folder that `text` led to.  ways: before it did. */
void mm_folder_is_known(const char *text, int fd, uint32_t ways)
{
    struct stat st;
    if (!text[0] || sys(SYS_fstat, fd, &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    struct known *k = known_at(text);
    uint32_t version = __atomic_load_n(&k->version, __ATOMIC_RELAXED) & ~1u;
    if (!__atomic_compare_exchange_n(&k->version, &version, version + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    k->ways = ways, k->dev = st.st_dev, k->ino = st.st_ino;
    strcpy(k->path, text);
    __atomic_store_n(&k->version, version + 2, __ATOMIC_RELEASE);
}
