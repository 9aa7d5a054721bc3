/* The random program's frame: its numbers, names, lines, and the picture of the folder; see surface.h. */
#include "surface.h"
#include <dirent.h>
#include <linux/magic.h>
#include <metamori.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

char room[ROOM];
int slot[SLOTS];
FILE *stream[STREAMS];
char *bad;
static uint64_t state;
static long line;
static char text[8192];
static size_t texted;

uint32_t draw(uint32_t below)
{
    state += 0x9e3779b97f4a7c15ull;
    uint64_t z = (state ^ state >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return below ? (uint32_t)((z ^ z >> 31) >> 16) % below : 0;
}
int chance(int percent) { return (int)draw(100) < percent; }

static void out(void)
{
    for (size_t done = 0; done < texted;) {
        ssize_t n = write(1, text + done, texted - done);
        if (n < 0)
            _exit(99);
        done += n;
    }
    texted = 0;
}
void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (texted > sizeof text - 2048)
        out();
    texted += vsnprintf(text + texted, sizeof text - texted, format, list);
    va_end(list);
}
void told(const char *what, long long result)
{
    if (result < 0)
        say(" %s=-1 %s", what, strerrorname_np(errno));
    else
        say(" %s=%lld", what, result);
}
void told_bytes(const char *what, long long result, const char *bytes)
{
    told(what, result);
    if (result > 0)
        say("/%08x", crc(bytes, result));
}
uint32_t crc(const char *bytes, size_t length)
{
    uint32_t c = 0x811c9dc5;
    for (size_t i = 0; i < length; i++)
        c = (c ^ (unsigned char)bytes[i]) * 0x01000193;
    return c;
}
const char *fill(size_t length)
{
    for (size_t i = 0; i < length && i < ROOM; i++)
        room[i] = (char)('A' + (line * 7 + i / 512 + i) % 53);
    return room;
}

/* -- names -------------------------------------------------------------------------------------- */

static const char *const files[] = {"f0", "f1", "f2", "f3", "d0/a", "d0/b", "d1/a", "old", "holes"};
static const char *const others[] = {"d0", "d1", "d0/s", "l0", "l1", "l2", "loop", "p0", "d1/t", "n\xff\xfe!", "?", "x"};
static char longest[300], home[4096];

static const char *name(int any)
{
    if (!any || chance(70))
        return files[draw(9)];
    const char *n = others[draw(12)];
    return *n == '?' ? longest : n;
}
const char *plain(void) { return name(1); }
const char *file(void) { return name(chance(10)); }

const char *path(void)
{
    static char spelled[4][8192];
    static int turn;
    char *s = spelled[turn++ & 3];
    const char *n = name(1);
    switch (draw(16)) {
    case 0: sprintf(s, "%s/", n); break;
    case 1: sprintf(s, "./%s", n); break;
    case 2: sprintf(s, "d0/../%s", n); break;
    case 3: sprintf(s, "%s/%s", home, n); break;
    case 4: sprintf(s, "l2//%s", n); break;                /* l2 leads to d0 */
    case 5: sprintf(s, "%s/.", n); break;
    case 6: sprintf(s, "%s/..", n); break;
    case 7: sprintf(s, "/proc/self/fd/%d", some()); break;
    case 8: sprintf(s, "/proc/self/cwd/%s", n); break;
    case 9:
        if (chance(10))
            return draw(3) ? draw(2) ? "" : NULL : bad;
        if (chance(10)) {
            memset(s, '/', 5000);                           /* not the root's own: others would meet it there */
            memcpy(s, home, strlen(home));
            strcpy(s + (draw(2) ? 4080 : 4095), n);
            break;
        }
        if (chance(10)) {
            strcpy(s, longest);
            strcat(s, "x");
            break;
        } /* fall through */
    default: strcpy(s, n);
    }
    return s;
}
int some(void)
{
    for (int i = 0; i < 6 && chance(97); i++) {
        int fd = slot[draw(SLOTS)];
        if (fd >= 0)
            return fd;
    }
    return draw(3) ? 77 : -1;
}
int folder(void)
{
    static int here = -1;
    if (here < 0)
        here = fcntl(open(".", O_PATH), F_DUPFD, 80);
    return chance(50) ? AT_FDCWD : chance(90) ? here : some();
}
void put(int fd)
{
    if (fd < 0)
        return;
    int i = draw(SLOTS);
    if (slot[i] >= 0) {
        int saved = errno;
        told("closed", close(slot[i]));
        errno = saved;
    }
    slot[i] = fd;
}
/* Files there end where ext4's do: what lies beyond 512 GB others take, but not redirected (docs/limits.md). */
static int short_files(void)
{
    static int known;
    struct statfs s;
    if (!known)
        known = statfs(".", &s) == 0 && s.f_type == EXT4_SUPER_MAGIC ? 1 : 2;
    return known == 1;
}
off_t place(void)
{
    static const off_t corners[] = {0, 1, 4095, 4096, 4097, 8192, 65536, 100000, -1, -4096, INT64_MAX, INT64_MAX - 100,
                                    1ll << 44, (1ll << 44) + 4096, 1ll << 50, 1ll << 62};
    if (chance(3))
        return corners[draw(short_files() ? 16 : 10)];
    return chance(30) ? 4096 * (off_t)draw(12) : draw(60000);
}
size_t length(void)
{
    static const size_t some_lengths[] = {0, 1, 7, 100, 511, 4095, 4096, 4097, 8192, 10000, 12288, 40000};
    return chance(60) ? some_lengths[draw(12)] : draw(20000);
}

/* -- the picture -------------------------------------------------------------------------------- */

static void attributes(const char *full)
{
    char list[1024], value[256];
    ssize_t n = llistxattr(full, list, sizeof list);
    char *names[16];
    int count = 0;
    for (char *p = list; n > 0 && p < list + n && count < 16; p += strlen(p) + 1)
        names[count++] = p;
    for (int i = 0; i < count; i++)                        /* by name: the file system's order is its own */
        for (int j = i + 1; j < count; j++)
            if (strcmp(names[j], names[i]) < 0) {
                char *t = names[i];
                names[i] = names[j], names[j] = t;
            }
    for (int i = 0; i < count; i++) {
        ssize_t got = lgetxattr(full, names[i], value, sizeof value);
        say(" %s=%zd/%08x", names[i], got, got > 0 ? crc(value, got) : 0);
    }
}
static uint32_t content(const char *full)
{
    uint32_t c = 0x811c9dc5;
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    static char piece[65536];
    ssize_t n, total = 0;
    while ((n = read(fd, piece, sizeof piece)) > 0 && total < 1 << 20) {
        total += n;
        for (ssize_t i = 0; i < n; i++)
            c = (c ^ (unsigned char)piece[i]) * 0x01000193;
    }
    close(fd);
    return n < 0 ? (uint32_t)errno : c;
}
static void when(const char *what, struct timespec t)
{
    if (t.tv_sec < 1000000000)
        say(" %s%lld.%ld", what, (long long)t.tv_sec, t.tv_nsec);
    else
        say(" %snow", what);
}
static void branch(const char *where, int times)
{
    struct dirent **list;
    int n = scandir(where, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char full[4096 + 300];
        struct stat s;
        const char *it = list[i]->d_name;
        snprintf(full, sizeof full, "%s/%s", where, it);
        if (strcmp(it, ".") && strcmp(it, "..") && lstat(full, &s) == 0) {
            int regular = S_ISREG(s.st_mode), directory = S_ISDIR(s.st_mode);
            say("\n  %s %o %d:%d", full + 2, s.st_mode, s.st_uid, s.st_gid);
            if (regular)
                say(" %lld x%d", (long long)s.st_size, (int)s.st_nlink);
            if (regular && s.st_size < 1 << 20)
                say(" %08x", content(full));
            if (S_ISLNK(s.st_mode)) {
                char target[4096];
                ssize_t got = readlink(full, target, sizeof target);
                say(" >%.*s", (int)(got > 0 ? got : 0), target);
            }
            if (S_ISCHR(s.st_mode) || S_ISBLK(s.st_mode))
                say(" %u,%u", major(s.st_rdev), minor(s.st_rdev));
            if (times || regular)
                when("m", s.st_mtim);
            attributes(full);
            if (directory)
                branch(full, times);
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}
void tree(int times)
{
    say("tree");
    branch(".", times);
    say("\n");
    out();
}

/* -- the program -------------------------------------------------------------------------------- */

static volatile int signals;
static void count_signal(int number) { (void)number; signals++; }

static int setup(void)
{
    umask(022);
    mkdir("d0", 0755), mkdir("d1", 0700);
    int fd = open("old", O_RDWR | O_CREAT, 0640);
    line = 5;
    if (write(fd, fill(50000), 50000) != 50000)
        return 1;
    fsetxattr(fd, "user.old", "as it was", 9, 0);
    close(fd);
    fd = open("holes", O_RDWR | O_CREAT, 0600);
    if (pwrite(fd, fill(5000), 5000, 20000) != 5000 || ftruncate(fd, 70000))
        return 1;
    close(fd);
    fd = open("d0/a", O_RDWR | O_CREAT, 0644);
    if (write(fd, fill(9000), 9000) != 9000)
        return 1;
    close(fd);
    setxattr("d0", "user.folder", "yes", 3, 0);
    struct timespec both[2] = {{1000, 5}, {2000, 7}};
    const char *set[] = {"old", "holes", "d0/a", "d0", "d1"};
    if (link("d0/a", "d1/a"))
        return 1;
    for (int i = 0; i < 5; i++)
        utimensat(AT_FDCWD, set[i], both, 0);
    return symlink("old", "l0") || symlink("d0", "l2") || symlink("loop", "loop") || mkfifo("p0", 0600);
}

static const struct act *choose(void)
{
    const struct act *lists[] = {data_acts, name_acts, attribute_acts, stream_acts};
    int total = 0;
    for (int i = 0; i < 4; i++)
        for (const struct act *a = lists[i]; a->name; a++)
            total += a->weight;
    int at = draw(total);
    for (int i = 0; i < 4; i++)
        for (const struct act *a = lists[i]; a->name; a++)
            if ((at -= a->weight) < 0)
                return a;
    return NULL;
}
static int left_out(const char *name)
{
    const char *list = getenv("SURFACE_SKIP"), *at = list ? strstr(list, name) : NULL;
    return at && (at == list || at[-1] == ',') && (at[strlen(name)] == ',' || !at[strlen(name)]);
}
static void checkpoint(void)
{
    fflush(NULL);                       /* a checkpoint does */
    int index = metamori_checkpoint();
    if (index < 0 && errno != ENOSYS)
        say("checkpoint: %s\n", strerrorname_np(errno));
    say("checkpoint\n");
    tree(0);
}
static int run(uint64_t seed, long count, const char *kept)
{
    static char keep[1 << 20];
    FILE *f = kept ? fopen(kept, "re") : NULL;
    for (long n; f && fscanf(f, "%ld", &n) == 1;)
        if (n >= 0 && n < 1 << 20)
            keep[n] = 1;
    if (f)
        fclose(f);
    memset(slot, -1, sizeof slot);
    umask(022);
    signal(SIGXFSZ, count_signal);
    signal(SIGPIPE, SIG_IGN);
    memset(longest, 'L', 255);
    if (!getcwd(home, sizeof home))
        return 1;
    bad = (char *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
    mprotect(bad, 4096, PROT_NONE);
    for (line = 0; line < count; line++) {
        state = (seed * 1000003 + line) * 0xff51afd7ed558ccdull;
        if (kept && !keep[line])
            continue;
        if (line % 50 == 25) {
            checkpoint();
            continue;
        }
        if (line % 25 == 24) {
            tree(1);
            continue;
        }
        const struct act *a = choose();
        if (left_out(a->name))
            continue;
        say("%ld %s", line, a->name);
        errno = 0;
        signals = 0;
        a->run();
        if (signals)
            say(" signals=%d", signals);
        say("\n");
        out();
    }
    for (int i = 0; i < STREAMS; i++)
        if (stream[i])
            told("fclose", fclose(stream[i]));
    say("\n");
    tree(1);
    return 0;
}

int main(int count, char **word)
{
    const char *what = count > 1 ? word[1] : "";
    if (!strcmp(what, "setup"))
        return setup();
    if (!strcmp(what, "run") && count > 3)
        return run(strtoull(word[2], NULL, 0), atol(word[3]), count > 4 ? word[4] : NULL);
    tree(0);
    return 0;
}
