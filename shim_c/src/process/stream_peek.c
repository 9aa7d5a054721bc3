/* stream_peek.c - the state of a stream of any process, read from outside.  Source: glibc's libio.h; the fields used
 * have had their places since glibc 2.1, those of wide streams since 2.2. */
#define _GNU_SOURCE
#include "process/streams.h"
#include "base/sys.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

long mm_peek(uint32_t pid, uint64_t address, void *out, size_t count)
{
    struct iovec to = { out, count }, from = { (void *)(uintptr_t)address, count };
    return sys(SYS_process_vm_readv, pid, &to, 1, &from, 1, 0);
}

/* Wide characters lie between the bytes of the narrow buffer and the program. The buffer's first wide character was the
 * first byte of the narrow area: the position is the one of that byte and as many characters on as have been read. */
static int wide_peek(uint32_t pid, const FILE *f, struct mm_stream_state *out)
{
    struct mm_wide w;
    if (mm_peek(pid, (uint64_t)(uintptr_t)f->_wide_data, &w, sizeof w) != (long)sizeof w)
        return -EFAULT;
    if (f->_flags & MM_FILE_PUTTING) {
        out->unflushed = (char *)w.write_ptr - (char *)w.write_base;
        out->unflushed_at = (uint64_t)(uintptr_t)w.write_base;
        return 0;
    }
    const wchar_t *next = w.read_ptr;
    if (f->_flags & MM_FILE_IN_BACKUP) {
        long n = (char *)w.read_end - (char *)w.read_ptr;
        if (n > MM_PUSHED)
            n = MM_PUSHED;
        if (n > 0 && mm_peek(pid, (uint64_t)(uintptr_t)w.read_ptr, out->pushed, n) == n)
            out->pushed_count = (int32_t)n;
        next = w.save_base;
    }
    out->skip = (int32_t)(next - w.buf_base);
    out->unread = f->_IO_read_end - f->_IO_read_base;
    return 0;
}

int mm_stream_peek(uint32_t pid, uint64_t stream, struct mm_stream_state *out)
{
    FILE f;
    memset(out, 0, sizeof *out);
    if (mm_peek(pid, stream, &f, sizeof f) != (long)sizeof f)
        return -EFAULT;
    out->fd = f._fileno;
    out->flags = (f._flags & MM_FILE_EOF ? MM_STREAM_EOF : 0) | (f._flags & MM_FILE_ERROR ? MM_STREAM_ERROR : 0)
               | (f._flags & MM_FILE_LINE_BUF ? MM_STREAM_LINE_BUFFERED : 0)
               | (f._flags & MM_FILE_UNBUFFERED ? MM_STREAM_UNBUFFERED : 0) | (f._mode > 0 ? MM_STREAM_WIDE : 0);
    if (f._flags & MM_FILE_PUTTING && !(f._flags & MM_FILE_APPENDS))
        out->unread = f._IO_read_end - f._IO_write_base;   /* written into what was read: back there before it is put out */
    if (f._mode > 0)
        return wide_peek(pid, &f, out);
    if (f._flags & MM_FILE_PUTTING) {
        out->unflushed = f._IO_write_ptr - f._IO_write_base;
        out->unflushed_at = (uint64_t)(uintptr_t)f._IO_write_base;
    } else if (f._flags & MM_FILE_IN_BACKUP) {
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
