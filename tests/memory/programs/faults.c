/* A program that looks after faults of its own memory itself (userfaultfd), of before the last checkpoint and since, and gives that up. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <metamori.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE (1 << 20)

static char *mapped(void) { return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static int takes(int fd, char *memory)
{
    struct uffdio_register range = { { (unsigned long)memory, SIZE }, UFFDIO_REGISTER_MODE_MISSING, 0 };
    return ioctl(fd, UFFDIO_REGISTER, &range) == 0;
}

int main(void)
{
    struct uffdio_api api = { UFFD_API, 0, 0 };
    char *before = mapped();
    memset(before, 'b', SIZE);
    metamori_checkpoint();
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);     /* UFFD_USER_MODE_ONLY */
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
        return 77;
    int took = takes(fd, before), took_new = takes(fd, mapped());
    close(fd);
    memset(before, 'c', SIZE);
    metamori_checkpoint();
    printf("%d %d %c\n", took, took_new, before[SIZE - 1]);
    return 3;
}
