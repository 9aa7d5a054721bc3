/* Appends asynchronously what a checkpoint does not know: by POSIX aio, or with "raw" by io_submit itself. */
#include "say.h"
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <sys/syscall.h>

static void by_library(int fd, char *text)
{
    struct aiocb job = { .aio_fildes = fd, .aio_buf = text, .aio_nbytes = strlen(text) };
    const struct aiocb *all[1] = { &job };
    SAY(aio_write(&job));
    SAY(aio_suspend(all, 1, NULL));
    SAY(aio_return(&job));
}

static void by_kernel(int fd, char *text)
{
    aio_context_t context = 0;
    SAY(syscall(SYS_io_setup, 1, &context));
    struct iocb block = { .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                          .aio_buf = (uintptr_t)text, .aio_nbytes = strlen(text) }, *list[1] = { &block };
    struct io_event event;
    SAY(syscall(SYS_io_submit, context, 1L, list));
    SAY(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL));
    SAY(event.res);
    SAY(syscall(SYS_io_destroy, context));
}

int main(int argc, char **argv)
{
    void (*append)(int, char *) = argc > 1 && !strcmp(argv[1], "raw") ? by_kernel : by_library;
    int fd = open("data", O_WRONLY | O_CREAT | O_APPEND, 0644);
    SAY(write(fd, "first\n", 6));
    for (int i = 0; i < 2; i++) {
        if (metamori_checkpoint() < 0 && errno != ENOSYS)
            return 1;
        append(fd, i ? "third\n" : "second\n");
    }
    return 0;
}
