/* Names: microseconds of CPU time and of wall time for each of COUNT operations, in the present folder.
 *
 * names COUNT
 *   create    a new file, and close; chmod, rename, unlink, mkdir, rmdir: of one each
 *   journal   a file of one byte comes and goes, as SQLite's journal does; replace: it takes another's place
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static char name[64], other[64];

static int made(const char *path, int flags, int bytes)
{
    int fd = open(path, O_CREAT | O_RDWR | flags, 0644);
    return fd < 0 || (bytes && write(fd, name, bytes) != bytes) || close(fd);
}

static int create(void) { return made(name, O_EXCL, 0); }
static int mode(void) { return chmod(name, 0600); }
static int move(void) { return rename(name, other); }
static int gone(void) { return unlink(other); }
static int folder(void) { return mkdir(name, 0755); }
static int no_folder(void) { return rmdir(name); }
static int journal(void) { return made("journal", 0, 1) || unlink("journal"); }
static int replace(void) { return made("new", 0, 1) || rename("new", "old"); }

int main(int n, char **words)
{
    static const struct { const char *what; int (*does)(void); } all[] = {
        { "create", create }, { "chmod", mode }, { "rename", move }, { "unlink", gone }, { "mkdir", folder },
        { "rmdir", no_folder }, { "journal", journal }, { "replace", replace } };
    int count = n == 2 ? atoi(words[1]) : 0, failed = count <= 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && !failed; i++) {
        double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        for (int each = 0; each < count && !failed; each++) {
            snprintf(name, sizeof name, "f%d", each);
            snprintf(other, sizeof other, "g%d", each);
            failed = all[i].does();
        }
        printf("%s %.2f %.2f\n", all[i].what, (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / count,
               (now(CLOCK_MONOTONIC) - wall) / count);
    }
    return failed;
}
