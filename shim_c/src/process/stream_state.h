/* stream_state.h - what a checkpoint keeps of a stream; seen by Python too. */
#ifndef MM_STREAM_STATE_H
#define MM_STREAM_STATE_H
#include <stddef.h>
#include <stdint.h>
/* CDEF-BEGIN */
#define MM_PUSHED 256
#define MM_ACTION_FDS 64
#define MM_STREAM_EOF 1
#define MM_STREAM_ERROR 2
#define MM_STREAM_LINE_BUFFERED 4
#define MM_STREAM_UNBUFFERED 8
#define MM_STREAM_WIDE 16
struct mm_stream_state {
    int32_t fd;
    int32_t flags;             /* MM_STREAM_EOF … */
    int64_t unread;            /* bytes read ahead: the position is the descriptor's less these */
    int64_t unflushed;         /* bytes written but still in the stream; of a wide one: of its wchar_t */
    int32_t pushed_count;      /* bytes, the same */
    int32_t skip;              /* a wide stream: characters that it has read from the position on */
    unsigned char pushed[MM_PUSHED];   /* pushed back by ungetc, in the order in which they will be read */
    uint64_t unflushed_at;     /* address of them in the process */
};
int mm_stream_peek(uint32_t pid, uint64_t stream, struct mm_stream_state *out);
long mm_peek(uint32_t pid, uint64_t address, void *out, size_t count);

/* One open description (and stream) to put back after a restore, carried out in the program by its own thread. */
struct mm_action {
    int32_t fds[MM_ACTION_FDS];
    int32_t fd_count;
    int32_t flags;             /* open(2) */
    int64_t position;
    uint64_t stream;           /* FILE, 0 for a bare descriptor */
    uint64_t close_on_exec;    /* which of fds: a bit each */
    struct mm_stream_state state;      /* what was not yet written lies in this process */
    uint32_t fit;              /* still open: its slot; else 0 */
    uint32_t pad_;
    char mode[16];
    char path[4096];           /* empty: more descriptors of the one before */
};
struct mm_actions {
    int32_t count, room;
    struct mm_action action[1];
};
/* CDEF-END */
#endif
