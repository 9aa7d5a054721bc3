/* Every call on the numbers of descriptors that this program has not opened: none of them is one. Before that it overwrites a
 * file, and afterwards it says what it reads there. */
#include "say.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static int wrong;
#define BAD(call) do { errno = 0; long r_ = (long)(call); if (r_ != -1 || errno != EBADF) \
    wrong++, printf("%s = %ld %s\n", #call, r_, strerrorname_np(errno)); } while (0)

static void bytes(int fd, int file)
{
    char data[] = "damage";
    struct iovec v = { data, 6 };
    int into[2], left;
    BAD(read(fd, data, 6)); BAD(write(fd, data, 6)); BAD(pread(fd, data, 6, 0)); BAD(pwrite(fd, data, 6, 0));
    BAD(readv(fd, &v, 1)); BAD(writev(fd, &v, 1)); BAD(preadv(fd, &v, 1, 0)); BAD(pwritev(fd, &v, 1, 0));
    BAD(preadv2(fd, &v, 1, 0, 0)); BAD(pwritev2(fd, &v, 1, 0, 0)); BAD(pwritev2(fd, &v, 1, 0, RWF_APPEND));
    BAD(syscall(SYS_write, fd, data, 6)); BAD(syscall(SYS_pwrite64, fd, data, 6, 0)); BAD(syscall(SYS_ftruncate, fd, 0));
    BAD(lseek(fd, 0, SEEK_SET)); BAD(ftruncate(fd, 0)); BAD(fallocate(fd, 0, 0, 10));
    BAD((errno = posix_fallocate(fd, 0, 10)) ? -1 : 0);
    BAD(fsync(fd)); BAD(fdatasync(fd)); BAD(syncfs(fd)); BAD(sync_file_range(fd, 0, 1, 0));
    BAD(copy_file_range(file, NULL, fd, NULL, 4, 0)); BAD(copy_file_range(fd, NULL, file, NULL, 4, 0));
    BAD(sendfile(fd, file, NULL, 4)); BAD(sendfile(file, fd, NULL, 4));
    if (pipe(into) == 0 && write(into[1], data, 6) == 6) {
        BAD(splice(into[0], NULL, fd, NULL, 4, 0)); BAD(splice(fd, NULL, into[1], NULL, 4, 0));
    }
    close(into[0]), close(into[1]);
    BAD(ioctl(fd, FIONREAD, &left));
    BAD(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)); BAD(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
}

static void others(int fd)
{
    struct stat st;
    struct statx more;
    struct timespec times[2] = { { 1, 1 }, { 2, 2 } };
    struct timeval older[2] = { { 1, 1 }, { 2, 2 } };
    struct flock lock = { .l_type = F_WRLCK };
    BAD(fchmod(fd, 0777)); BAD(fchown(fd, 0, 0)); BAD(futimens(fd, times)); BAD(futimes(fd, older));
    BAD(fsetxattr(fd, "user.a", "b", 1, 0)); BAD(fremovexattr(fd, "user.a"));
    BAD(fstat(fd, &st)); BAD(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &more)); BAD(fchdir(fd));
    BAD(dup(fd)); BAD(dup2(fd, 50)); BAD(dup3(fd, 50, 0)); BAD(dup2(fd, fd)); BAD(close(fd));
    BAD(fcntl(fd, F_GETFD)); BAD(fcntl(fd, F_SETFD, 0)); BAD(fcntl(fd, F_DUPFD, 3)); BAD(fcntl(fd, F_SETLK, &lock));
    BAD(lockf(fd, F_LOCK, 0)); BAD(fdopen(fd, "r") ? 0 : -1);
}

int main(void)
{
    char name[300], content[21] = "";
    struct stat st;
    int file = open("f", O_RDWR), number[64], count = 0;
    if (file < 0 || pwrite(file, "overwritten", 11, 0) != 11)
        return 1;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder)) && count < 64; ) {
        snprintf(name, sizeof name, "/proc/self/fd/%s", entry->d_name);
        if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != file && atoi(entry->d_name) != dirfd(folder) && lstat(name, &st) == 0)
            number[count++] = atoi(entry->d_name);
    }
    closedir(folder);
    for (int i = 0; i < count; i++) {
        bytes(number[i], file);
        others(number[i]);
    }
    fprintf(stderr, "%d numbers\n", count);
    printf("%d wrong; %zd: %s\n", wrong, pread(file, content, 20, 0), content);
    return 0;
}
