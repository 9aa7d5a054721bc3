/* Overwrites bytes that a checkpoint knows by io_submit itself, as programs without libaio do. */
#include "say.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <sys/syscall.h>

int main(void)
{
    char old[4096], new[4096], back[4096];
    memset(old, 'o', sizeof old);
    memset(new, 'n', sizeof new);
    int fd = open("data", O_RDWR | O_CREAT, 0644);
    SAY(pwrite(fd, old, sizeof old, 0));
    if (metamori_checkpoint() < 0 && errno != ENOSYS)
        return 1;
    aio_context_t context = 0;
    SAY(syscall(SYS_io_setup, 1, &context));
    struct iocb block = { .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                          .aio_buf = (uintptr_t)new, .aio_nbytes = sizeof new }, *list[1] = { &block };
    struct io_event event;
    SAY(syscall(SYS_io_submit, context, 1L, list));
    SAY(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL));
    SAY(event.res);
    SAY(pread(fd, back, sizeof back, 0));
    SAY(memcmp(back, new, sizeof new));
    SAY(syscall(SYS_io_submit, context, 1L, (void *)8));
    SAY(syscall(SYS_io_destroy, context));
    return 0;
}
