/* stream_empty.c - a stream with empty buffers, neither reading nor writing: as right after fopen. */
#include "process/streams.h"

#include <string.h>

static void wide_empty(FILE *f)
{
    struct mm_wide *w = (struct mm_wide *)f->_wide_data;
    if (f->_flags & MM_FILE_IN_BACKUP) {           /* wide streams keep what was pushed back here, the narrow fields were not swapped */
        f->_flags &= ~MM_FILE_IN_BACKUP;
        wchar_t *end = w->read_end, *base = w->read_base;
        w->read_end = w->save_end;
        w->read_base = w->save_base;
        w->save_end = end;
        w->save_base = base;
    }
    w->read_ptr = w->read_end = w->read_base = w->buf_base;
    w->write_ptr = w->write_end = w->write_base = w->buf_base;
    memset(&w->state, 0, sizeof w->state);
    memset(&w->last_state, 0, sizeof w->last_state);
}

void mm_stream_empty(FILE *f)
{
    if (f->_mode > 0)
        wide_empty(f);
    if (f->_flags & MM_FILE_IN_BACKUP) {   /* in the backup area: back to the main buffer */
        f->_flags &= ~MM_FILE_IN_BACKUP;
        char *end = f->_IO_read_end, *base = f->_IO_read_base;
        f->_IO_read_end = f->_IO_save_end;
        f->_IO_read_base = f->_IO_save_base;
        f->_IO_save_end = end;
        f->_IO_save_base = base;
    }
    f->_IO_read_ptr = f->_IO_read_end = f->_IO_read_base = f->_IO_buf_base;
    f->_IO_write_ptr = f->_IO_write_end = f->_IO_write_base = f->_IO_buf_base;
    f->_flags &= ~(MM_FILE_EOF | MM_FILE_ERROR | MM_FILE_PUTTING);
    f->_offset = -1;
}
