/* stream_peek.c - the state of a stream of any process, read from outside.  Source: glibc's libio.h; the fields used
 * have had their places since glibc 2.1. */
#define _GNU_SOURCE
#include "stream_state.h"
#include "sys.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

enum { EOF_SEEN = 0x10, ERR_SEEN = 0x20, IN_BACKUP = 0x100, LINE_BUF = 0x200, UNBUFFERED = 2, PUTTING = 0x800 };

long mm_peek(uint32_t pid, uint64_t address, void *out, size_t count)
{
    struct iovec to = { out, count }, from = { (void *)(uintptr_t)address, count };
    return sys(SYS_process_vm_readv, pid, &to, 1, &from, 1, 0);
}

int mm_stream_peek(uint32_t pid, uint64_t stream, struct mm_stream_state *out)
{
    FILE f;
    memset(out, 0, sizeof *out);
    if (mm_peek(pid, stream, &f, sizeof f) != (long)sizeof f)
        return -EFAULT;
    out->fd = f._fileno;
    out->flags = (f._flags & EOF_SEEN ? 1 : 0) | (f._flags & ERR_SEEN ? 2 : 0) | (f._flags & LINE_BUF ? 4 : 0)
               | (f._flags & UNBUFFERED ? 8 : 0) | (f._mode > 0 ? 16 : 0);
    if (f._flags & PUTTING) {
        out->unflushed = f._IO_write_ptr - f._IO_write_base;
        out->unflushed_at = (uint64_t)(uintptr_t)f._IO_write_base;
    } else if (f._flags & IN_BACKUP) {
        /* reading what was pushed back: the main buffer waits in the save area, from where it stood */
        long n = f._IO_read_end - f._IO_read_ptr;
        if (n > MM_PUSHED)
            n = MM_PUSHED;
        if (n > 0 && mm_peek(pid, (uint64_t)(uintptr_t)f._IO_read_ptr, out->pushed, n) == n)
            out->pushed_count = (int32_t)n;
        out->unread = f._IO_save_end - f._IO_save_base;
    } else {
        out->unread = f._IO_read_end - f._IO_read_ptr;
    }
    return 0;
}
