/* pairs_names.c - calls that give, take and change names. */
#define _GNU_SOURCE
#include "pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *const names[] = { "a", "b", "c", "h", "d/f", "d/g", "e/f", "l", "d", "e" };
enum { FILES = 8, ALL = 10 };

/* A name; most often the one that the other side would get. */
static const char *a_name(struct side *side, int of)
{
    uint64_t both = side->dice > side->other_dice ? side->dice : side->other_dice;
    uint64_t own = pick(side, 100);
    return names[own < 55 ? both / 7 % 1000003 % (uint64_t)of : pick(side, (uint64_t)of)];
}

void names_begin(int world)
{
    char path[64];
#define AT(name) (snprintf(path, sizeof path, "w%d/%s", world, name), path)
    mkdir(AT(""), 0755);
    mkdir(AT("d"), 0755);
    mkdir(AT("e"), 0755);
    write_file(AT("a"), 10000, world);
    write_file(AT("b"), 100, world + 1);
    write_file(AT("d/f"), 5000, world + 2);
    char from[64];
    strcpy(from, AT("a"));
    if (link(from, AT("h")) < 0 || symlink("c", AT("l")) < 0)
        abort();
}

/* One call on one path. */
#define ONE(side, of, call) \
    do { \
        struct place p = place(side, a_name(side, of)); \
        if (p.error) said(side, p.error); else SAY(side, call); \
        placed(&p); \
    } while (0)

/* One call on two. */
#define TWO(side, of, call) \
    do { \
        const char *from_ = a_name(side, of), *to_ = names[pick(side, of)]; \
        struct place p = place(side, from_), q = place(side, to_); \
        if (p.error || q.error) said(side, p.error ? p.error : q.error); else SAY(side, call); \
        placed(&p), placed(&q); \
    } while (0)

static void takes_away(struct side *s) { ONE(s, FILES, unlinkat(p.dir, p.name, 0)); }
static void takes_folder(struct side *s) { ONE(s, ALL, unlinkat(p.dir, p.name, AT_REMOVEDIR)); }
static void makes_folder(struct side *s) { ONE(s, ALL, mkdirat(p.dir, p.name, 0755)); }
static void makes_node(struct side *s) { ONE(s, FILES, mknodat(p.dir, p.name, S_IFREG | 0644, 0)); }
static void makes_symlink(struct side *s) { ONE(s, FILES, symlinkat("c", p.dir, p.name)); }
static void moves(struct side *s) { TWO(s, FILES, renameat(p.dir, p.name, q.dir, q.name)); }
static void moves_any(struct side *s) { TWO(s, ALL, renameat(p.dir, p.name, q.dir, q.name)); }
static void moves_gently(struct side *s)
{
    TWO(s, ALL, renameat2(p.dir, p.name, q.dir, q.name, RENAME_NOREPLACE));
}
static void exchanges(struct side *s) { TWO(s, ALL, renameat2(p.dir, p.name, q.dir, q.name, RENAME_EXCHANGE)); }
/* The old name is looked up, all of it, before the new one's folder. */
static void links(struct side *s)
{
    const char *from = a_name(s, FILES), *to = names[pick(s, FILES)];
    struct place p = place(s, from), q = { .dir = -1 };
    struct stat st;
    if (p.error)
        said(s, p.error);
    else if (s->stepwise && fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        said(s, -errno);
    else if ((q = place(s, to)).error)
        said(s, q.error);
    else
        SAY(s, linkat(p.dir, p.name, q.dir, q.name, 0));
    placed(&p), placed(&q);
}

static void moves_folder(struct side *s)
{
    const char *from = pick(s, 2) ? "d" : "e", *to = pick(s, 3) ? *from == 'd' ? "e" : "d" : "c";
    struct place p = place(s, from), q = place(s, to);
    SAY(s, renameat2(p.dir, p.name, q.dir, q.name, pick(s, 2) ? RENAME_EXCHANGE : 0));
}

static void changes_mode(struct side *s)
{
    static const mode_t modes[] = { 0700, 0744, 0740, 0755 };  /* folders too: an ordinary user has to get into them */
    ONE(s, ALL, fchmodat(p.dir, p.name, modes[pick(s, 4)], 0));
}
static void changes_owner(struct side *s) { ONE(s, FILES, fchownat(p.dir, p.name, -1, 1 + pick(s, 3), AT_SYMLINK_NOFOLLOW)); }
static void changes_time(struct side *s)
{
    struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 + (long)pick(s, 9) } };
    ONE(s, FILES, utimensat(p.dir, p.name, times, 0));
}
static void changes_attribute(struct side *s)
{
    char value[8], at[120];
    int length = snprintf(value, sizeof value, "v%d", (int)pick(s, 9));
    /* there is no call by folder and name: by the path that the kernel knows the folder by */
#define BY_PROC(p) (snprintf(at, sizeof at, p.dir < 0 ? "%.0d%s" : "/proc/self/fd/%d/%s", p.dir < 0 ? 0 : p.dir, p.name), at)
    ONE(s, FILES, setxattr(BY_PROC(p), "user.k", value, length, 0));
}
static void cuts(struct side *s)
{
    char at[120];
    off_t length = pick(s, 2) ? 3000 : 12000;
    ONE(s, FILES, truncate(BY_PROC(p), length));
}

/* -- files that are opened ------------------------------------------------------------------------------------------------- */

static int opens_at(struct side *s, const char *name, int flags)
{
    struct place p = place(s, name);
    long fd = p.error ? p.error : openat(p.dir, p.name, flags, 0644);
    if (fd == -1)
        fd = -errno;
    said(s, fd < 0 ? fd : 0);
    placed(&p);
    turn(s);
    return (int)fd;
}
static int opens(struct side *s, int flags) { return opens_at(s, a_name(s, FILES), flags); }

static const char *mark(struct side *s)
{
    static __thread char text[32];
    snprintf(text, sizeof text, "%c%03d.%03d", 'A' + s->who, s->phase % 1000, s->world % 1000);
    return text;
}

static void writes_and_closes(struct side *s, int fd)
{
    if (fd < 0)
        return;
    SAY(s, write(fd, mark(s), 8));
    turn(s);
    close(fd);
}

static void makes(struct side *s) { writes_and_closes(s, opens(s, O_WRONLY | O_CREAT | O_EXCL)); }
static void makes_or_empties(struct side *s) { writes_and_closes(s, opens(s, O_WRONLY | O_CREAT | O_TRUNC)); }
static void empties(struct side *s) { writes_and_closes(s, opens(s, O_WRONLY | O_TRUNC)); }
static void appends(struct side *s) { writes_and_closes(s, opens(s, O_WRONLY | O_APPEND)); }
static void makes_or_appends(struct side *s) { writes_and_closes(s, opens(s, O_WRONLY | O_APPEND | O_CREAT)); }
static void overwrites(struct side *s) { writes_and_closes(s, opens(s, O_RDWR)); }

static void makes_nameless(struct side *s)
{
    char path[64], by[40];
    const char *to = a_name(s, FILES);
    snprintf(path, sizeof path, "w%d", s->world);
    int fd = open(path, O_WRONLY | O_TMPFILE, 0644);
    if (fd < 0) {
        said(s, -errno);
        return;
    }
    SAY(s, write(fd, mark(s), 8));
    turn(s);
    struct place p = place(s, to);
    snprintf(by, sizeof by, "/proc/self/fd/%d", fd);
    if (p.error)
        said(s, p.error);
    else
        SAY(s, linkat(AT_FDCWD, by, p.dir, p.name, AT_SYMLINK_FOLLOW));
    placed(&p);
    turn(s);
    close(fd);
}

/* -- a descriptor that is held over checkpoints, whatever happens to its names --------------------------------------------- */

static void holds(struct side *s)
{
    if (s->held >= 0)
        close(s->held);
    s->held = opens(s, O_RDWR | (pick(s, 2) ? O_APPEND : 0));
}
static void writes_held(struct side *s)
{
    if (s->held >= 0)
        SAY(s, write(s->held, mark(s), 8));
}
static void reads_held(struct side *s)
{
    struct stat st;
    if (s->held < 0)
        return;
    int r = fstat(s->held, &st);
    said(s, r < 0 ? -errno : (long)st.st_size);
    said(s, r < 0 ? -errno : (long)st.st_nlink);
}
static void lets_go(struct side *s)
{
    if (s->held >= 0)
        SAY(s, close(s->held));
    s->held = -1;
}
static void links_held(struct side *s)
{
    char by[40];
    if (s->held < 0)
        return;
    snprintf(by, sizeof by, "/proc/self/fd/%d", s->held);
    ONE(s, FILES, linkat(AT_FDCWD, by, p.dir, p.name, AT_SYMLINK_FOLLOW));
}
static void cuts_held(struct side *s)
{
    if (s->held >= 0)
        SAY(s, ftruncate(s->held, 3000));
}

const struct call names_calls[] = {
    { "unlink", takes_away }, { "rmdir", takes_folder }, { "mkdir", makes_folder }, { "mknod", makes_node },
    { "symlink", makes_symlink }, { "rename", moves }, { "rename", moves_any }, { "rename a folder", moves_folder },
    { "rename, no replace", moves_gently }, { "exchange", exchanges }, { "link", links }, { "chmod", changes_mode },
    { "chown", changes_owner }, { "utimens", changes_time }, { "setxattr", changes_attribute }, { "truncate", cuts },
    { "create", makes }, { "create or truncate", makes_or_empties }, { "open to truncate", empties }, { "append", appends },
    { "create or append", makes_or_appends }, { "overwrite", overwrites }, { "O_TMPFILE and linkat", makes_nameless },
    { "hold", holds }, { "hold", holds }, { "write what is held", writes_held }, { "fstat what is held", reads_held },
    { "close what is held", lets_go }, { "link what is held", links_held }, { "truncate what is held", cuts_held },
    { "unlink", takes_away }, { "rename", moves },
    { NULL, NULL },
};
