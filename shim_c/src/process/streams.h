/* streams.h - glibc's FILE from inside. */
#ifndef MM_STREAMS_H
#define MM_STREAMS_H
#include "process/stream_state.h"
#include <stdio.h>
#include <wchar.h>

/* FILE._flags: glibc's libio.h, unchanged since 2.1 */
enum { MM_FILE_UNBUFFERED = 2, MM_FILE_NO_READS = 4, MM_FILE_NO_WRITES = 8, MM_FILE_EOF = 0x10, MM_FILE_ERROR = 0x20,
       MM_FILE_IN_BACKUP = 0x100, MM_FILE_LINE_BUF = 0x200, MM_FILE_PUTTING = 0x800, MM_FILE_APPENDS = 0x1000 };

/* the beginning of glibc's struct _IO_wide_data, unchanged since 2.2 */
struct mm_wide {
    wchar_t *read_ptr, *read_end, *read_base, *write_base, *write_ptr, *write_end, *buf_base, *buf_end;
    wchar_t *save_base, *backup_base, *save_end;
    mbstate_t state, last_state;
};

/* stream_empty.c */
void mm_stream_empty(FILE *f) __attribute__((visibility("hidden")));

#endif
