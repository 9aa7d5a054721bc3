/* The kernel's file calls in all the forms that libc gives them: 64-bit, at, vectored, and the rarer ones. */
#include "say.h"
#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <utime.h>

static char buffer[100000];

static void content(const char *name)
{
    int fd = open(name, O_RDONLY);
    long long got = read(fd, buffer, sizeof buffer);
    close(fd);
    say_bytes(name, buffer, got);
}

static void fill(const char *name, int size, char with)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    memset(buffer, with, size);
    SAY(write(fd, buffer, size));
    SAY(close(fd));
}

static void opening(void)
{
    int fd;
    SAY(fd = open("a", O_RDWR | O_CREAT, 0640));
    SAY(close(fd));
    SAY(fd = open64("a", O_WRONLY));
    SAY(close(fd));
    SAY(fd = creat("b", 0600));
    SAY(close(fd));
    SAY(fd = creat64("b", 0600));
    SAY(close(fd));
    SAY(fd = openat(AT_FDCWD, "b", O_RDWR));
    SAY(close(fd));
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    SAY(fd = openat64(folder, "c", O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    SAY(fcntl(fd, F_GETFD));
    SAY(close(fd));
    SAY(close(folder));
    SAY(open("missing/file", O_RDWR | O_CREAT, 0644));
    SAY(open("a/b", O_RDONLY));
    SAY(open("a", O_RDWR | O_CREAT | O_EXCL, 0644));
    SAY(open(".", O_RDWR));
    SAY(open("a", O_RDONLY | O_DIRECTORY));
    SAY(open((char *)8, O_RDONLY));
    char name[] = "tempXXXXXX", other[] = "tempXXXXXX.end";
    SAY(fd = mkstemp(name));
    SAY(write(fd, "temporary", 9));
    SAY(close(fd));
    SAY(unlink(name));
    SAY(fd = mkostemps(other, 4, O_CLOEXEC));
    SAY(close(fd));
    SAY(unlink(other));
    char made[] = "foldXXXXXX";
    SAY(mkdtemp(made) != NULL);
    SAY(rmdir(made));
    SAY(fd = open(".", O_TMPFILE | O_RDWR, 0600));
    SAY(write(fd, "no name", 7));
    SAY(close(fd));
}

static void data(void)
{
    struct iovec two[2] = {{"vector one,", 11}, {"vector two", 10}};
    struct iovec in[2] = {{buffer, 5}, {buffer + 5, 8}};
    fill("a", 9000, 'a');
    int fd = open("a", O_RDWR), out = open("b", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, "0123456789", 10));
    SAY(lseek64(fd, -4, SEEK_CUR));
    SAY(pwrite64(fd, "PWRITE", 6, 4090));
    SAY(writev(fd, two, 2));
    SAY(pwritev(fd, two, 2, 100));
    SAY(pwritev64(fd, two, 2, 5000));
    SAY(pwritev2(fd, two, 2, -1, 0));
    SAY(pwritev2(fd, two, 2, 8995, 0));
    SAY(pread(fd, buffer, 12, 4088));
    say_bytes("pread", buffer, 12);
    SAY(pread64(fd, buffer, 30, 98));
    say_bytes("pread64", buffer, 30);
    SAY(preadv(fd, in, 2, 4999));
    SAY(preadv2(fd, in, 2, -1, 0));
    SAY(readv(fd, in, 2));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 0, SEEK_DATA));
    SAY(lseek(fd, 0, SEEK_HOLE));
    SAY(lseek(fd, 20000, SEEK_DATA));
    SAY(read(fd, (char *)8, 10));
    SAY(write(fd, (char *)8, 10));
    SAY(pread(fd, buffer, 10, -1));
    SAY(read(-1, buffer, 1));
    SAY(write(out, "", 0));
    off_t from = 95, to = 3;
    SAY(sendfile(out, fd, &from, 20));
    SAY(from);
    from = 4085;
    SAY(copy_file_range(fd, &from, out, &to, 20, 0));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    SAY(readahead(fd, 0, 4096));
    SAY(ftruncate64(fd, 6000));
    SAY(truncate64("a", 7000));
    SAY(pread(fd, buffer, 9000, 5990));
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 9000));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 50, 5000));
    SAY(pread(fd, buffer, 60, 40));
    say_bytes("punched", buffer, 60);
    SAY(fallocate(fd, FALLOC_FL_ZERO_RANGE, 5100, 10));
    SAY(posix_fallocate(fd, 0, 12000));
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
    SAY(syncfs(fd));
    SAY(fcntl(fd, F_GETFL) & O_ACCMODE);
    SAY(close(out));
    SAY(close(fd));
    content("a");
    content("b");
}

static void other_ways_in(void)
{
    fill("mapped", 10000, 'm');
    int fd = open("mapped", O_RDWR);
    char *map = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SAY(map != MAP_FAILED);
    memcpy(map + 4090, "ACROSS BLOCKS", 13);
    SAY(msync(map, 10000, MS_SYNC));
    SAY(pread(fd, buffer, 20, 4085));
    say_bytes("through the descriptor", buffer, 20);
    SAY(pwrite(fd, "BACK", 4, 2));
    say_bytes("through the mapping", map, 10);
    SAY(munmap(map, 10000));
    map = mmap64(NULL, 10000, PROT_READ, MAP_PRIVATE, fd, 0);
    say_bytes("private", map, 10);
    SAY(munmap(map, 10000));
    struct aiocb job = {.aio_fildes = fd, .aio_offset = 500, .aio_buf = buffer, .aio_nbytes = 10};
    strcpy(buffer, "async more");
    SAY(aio_write(&job));
    const struct aiocb *all[1] = {&job};
    SAY(aio_suspend(all, 1, NULL));
    SAY(aio_return(&job));
    SAY(pread(fd, buffer + 50, 12, 499));
    say_bytes("aio", buffer + 50, 12);
    int ends[2];
    SAY(pipe(ends));
    SAY(lseek(fd, 4088, SEEK_SET));
    SAY(splice(fd, NULL, ends[1], NULL, 16, 0));
    SAY(read(ends[0], buffer, 100));
    say_bytes("splice", buffer, 16);
    SAY(write(ends[1], "from a pipe", 11));
    off_t at = 700;
    SAY(splice(ends[0], NULL, fd, &at, 11, 0));
    SAY(pread(fd, buffer, 13, 699));
    say_bytes("spliced", buffer, 13);
    close(ends[0]);
    close(ends[1]);
    SAY(close(fd));
    content("mapped");
}

static void stats(void)
{
    struct stat s;
    struct stat64 s64;
    struct statx x;
    struct statfs f;
    struct statvfs v;
    int fd = open("a", O_RDWR | O_APPEND);
    SAY(write(fd, "appended", 8));
    SAY(fstat(fd, &s));
    SAY(s.st_size);
    SAY(fstat64(fd, &s64));
    SAY(s64.st_size);
    SAY(stat("a", &s));
    SAY(s.st_size);
    SAY(lstat64("a", &s64));
    SAY(s64.st_size);
    SAY(fstatat(AT_FDCWD, "a", &s, AT_SYMLINK_NOFOLLOW));
    SAY(s.st_size);
    SAY(fstatat(fd, "", &s, AT_EMPTY_PATH));
    SAY(s.st_size);
    SAY(statx(AT_FDCWD, "a", 0, STATX_SIZE, &x));
    SAY(x.stx_size);
    SAY(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &x));
    SAY(x.stx_size);
    SAY(x.stx_nlink);
    SAY(statfs(".", &f));
    SAY(fstatvfs(fd, &v));
    SAY(access("a", R_OK | W_OK));
    SAY(faccessat(AT_FDCWD, "missing", F_OK, 0));
    SAY(euidaccess("a", R_OK));
    SAY(close(fd));
}

static void names(void)
{
    fill("n1", 100, '1');
    fill("n2", 200, '2');
    SAY(link("n1", "n3"));
    SAY(linkat(AT_FDCWD, "n2", AT_FDCWD, "n4", 0));
    SAY(symlink("n1", "soft"));
    SAY(symlinkat("n2", AT_FDCWD, "soft2"));
    SAY(renameat2(AT_FDCWD, "n1", AT_FDCWD, "n2", RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "n1", AT_FDCWD, "n2", RENAME_EXCHANGE));
    content("n1");
    content("n3");
    SAY(renameat(AT_FDCWD, "n4", AT_FDCWD, "n5"));
    SAY(mkdir("folder", 0750));
    SAY(mkdirat(AT_FDCWD, "folder/inner", 0755));
    SAY(rename("n5", "folder/inner/n5"));
    SAY(mkfifo("fifo", 0600));
    SAY(chmod("n2", 0604));
    SAY(fchmodat(AT_FDCWD, "n1", 0614, 0));
    SAY(chown("n2", getuid(), getgid()));
    SAY(lchown("soft", getuid(), getgid()));
    SAY(setxattr("n1", "user.mine", "value", 5, 0));
    SAY(getxattr("n1", "user.mine", buffer, 10));
    SAY(removexattr("n1", "user.mine"));
    struct timespec both[2] = {{1000, 5}, {2000, 7}};
    SAY(utimensat(AT_FDCWD, "n1", both, 0));
    struct timeval times[2] = {{3000, 0}, {4000, 0}};
    SAY(utimes("n2", times));
    struct stat s;
    SAY(stat("n1", &s));
    SAY(s.st_mtime);
    SAY(stat("n2", &s));
    SAY(s.st_mtime);
    SAY(readlink("soft", buffer, 100));
    SAY(readlinkat(AT_FDCWD, "soft2", buffer, 100));
    SAY(realpath("soft", buffer) != NULL);
    SAY(remove("soft"));
    SAY(unlinkat(AT_FDCWD, "soft2", 0));
    SAY(unlinkat(AT_FDCWD, "folder", AT_REMOVEDIR));
    SAY(rmdir("missing"));
    SAY(unlink("folder"));
    struct dirent **list;
    int n = scandir(".", &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        printf("%s ", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    printf("\n");
    SAY(unlink("folder/inner/n5"));
    SAY(rmdir("folder/inner"));
    SAY(unlinkat(AT_FDCWD, "folder", AT_REMOVEDIR));
    SAY(unlink("fifo"));
    SAY(unlink("n3"));
}

static void descriptors(void)
{
    int fd = open("a", O_RDWR);
    SAY(dup(fd));
    SAY(dup2(fd, 20));
    SAY(dup3(fd, 21, O_CLOEXEC));
    SAY(fcntl(fd, F_DUPFD, 22));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 23));
    SAY(lseek(20, 77, SEEK_SET));
    SAY(lseek(22, 0, SEEK_CUR));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 10};
    SAY(fcntl(fd, F_SETLK, &lock));
    SAY(lockf(fd, F_TEST, 0));
    SAY(flock(fd, LOCK_EX | LOCK_NB));
    SAY(flock(fd, LOCK_UN));
    SAY(close_range(20, 23, 0));
    SAY(fcntl(20, F_GETFD));
    SAY(close(fd + 1));
    SAY(close(fd));
    SAY(close(fd));
    SAY(dup2(99, 98));
    struct stat st;
    int open_ones = 0;
    for (int i = 0; i < 65536; i++)
        open_ones += (fcntl(i, F_GETFD) >= 0) + (fstat(i, &st) == 0);
    SAY(open_ones);
}

static void exercise(void)
{
    opening();
    data();
    other_ways_in();
    stats();
    names();
    descriptors();
}

int main(void) { return say_rounds(3, exercise); }
