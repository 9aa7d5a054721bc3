/* streams.h - glibc's FILE from inside. */
#ifndef MM_STREAMS_H
#define MM_STREAMS_H
#include "process/stream_state.h"
#include <stdio.h>
#include <wchar.h>

/* the beginning of glibc's struct _IO_wide_data, unchanged since 2.2 */
struct mm_wide {
    wchar_t *read_ptr, *read_end, *read_base, *write_base, *write_ptr, *write_end, *buf_base, *buf_end;
    wchar_t *save_base, *backup_base, *save_end;
    mbstate_t state, last_state;
};

/* stream_empty.c */
void mm_stream_empty(FILE *f) __attribute__((visibility("hidden")));

#endif
