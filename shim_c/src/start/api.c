/* api.c - metamori.h, and what a restore does to this process's descriptors and streams. */
#include "start/start.h"
#include "process/streams.h"
#include "process/runtime.h"

#include <stdlib.h>

#define ACTIONS 1024

extern void _IO_doallocbuf(FILE *);    /* the C library's; no header declares it */

static int narrow_back(FILE *f, const struct mm_stream_state *state)
{
    const void *unflushed = (const void *)(uintptr_t)state->unflushed_at;
    if (state->unflushed && fwrite(unflushed, 1, state->unflushed, f) != (size_t)state->unflushed)
        return 0;
    if (state->pushed_count && !f->_IO_buf_base)   /* opened anew, not read yet: ftell would not count what is pushed back */
        _IO_doallocbuf(f);
    for (int i = state->pushed_count - 1; i >= 0; i--)
        ungetc(state->pushed[i], f);
    return 1;
}

/* The program's own stream converts: how many bytes a character has, nobody else can tell. */
static int wide_back(FILE *f, const struct mm_stream_state *state)
{
    const wchar_t *unflushed = (const wchar_t *)(uintptr_t)state->unflushed_at, *pushed = (const wchar_t *)state->pushed;
    for (int i = 0; i < state->skip; i++)
        if (fgetwc(f) == WEOF)
            return 0;
    for (int64_t i = 0; i < state->unflushed / (int64_t)sizeof *unflushed; i++)
        if (fputwc(unflushed[i], f) == WEOF)
            return 0;
    for (int i = state->pushed_count / (int)sizeof *pushed - 1; i >= 0; i--)
        ungetwc(pushed[i], f);
    return 1;
}

static int stream_back(const struct mm_action *a)
{
    FILE *f = (FILE *)(uintptr_t)a->stream;
    mm_stream_empty(f);
    f->_fileno = a->fds[0];
    f->_flags &= ~(MM_FILE_NO_READS | MM_FILE_NO_WRITES | MM_FILE_APPENDS);    /* opened anew since in another mode? */
    int access = a->flags & O_ACCMODE;
    f->_flags |= access == O_RDONLY ? MM_FILE_NO_WRITES : access == O_WRONLY ? MM_FILE_NO_READS : 0;
    f->_flags |= a->flags & O_APPEND ? MM_FILE_APPENDS : 0;
    if (!(a->state.flags & MM_STREAM_WIDE ? wide_back : narrow_back)(f, &a->state))
        return -EIO;
    if (a->state.flags & MM_STREAM_EOF)
        f->_flags |= MM_FILE_EOF;
    if (a->state.flags & MM_STREAM_ERROR)
        f->_flags |= MM_FILE_ERROR;
    return 0;
}

/* Everything is opened at high numbers first and then put into place: no order of closing can go wrong.
 * What cannot be opened is -1, its descriptors will be closed; the others come back all the same. */
static int descriptors_back(struct mm_actions *list, int *opened)
{
    int result = 0;
    for (int i = 0; i < list->count; i++) {
        struct mm_action *a = &list->action[i];
        if (!a->path[0]) {                 /* more than an action holds: of what was opened before */
            opened[i] = i ? opened[i - 1] : -1;
            continue;
        }
        int fd = REAL(open)(a->path, (a->flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_TMPFILE)) | O_CLOEXEC);
        if (fd < 0) {
            result = -errno;
            opened[i] = -1;
            continue;
        }
        opened[i] = mm_high_fd(fd);
        if (sys_lseek(opened[i], a->position, SEEK_SET) < 0)
            result = -EIO;
    }
    return result;
}

static int put_into_place(struct mm_actions *list, const int *opened)
{
    static LARGE char keep[MM_FDS / 8];      /* one restore at a time */
    int result = 0;
    memset(keep, 0, mm_top_fd / 8 + 1);
    for (int i = 0; i < list->count; i++)
        for (int j = 0; opened[i] >= 0 && j < list->action[i].fd_count; j++)
            if (list->action[i].fds[j] <= mm_top_fd)
                keep[list->action[i].fds[j] / 8] |= 1 << list->action[i].fds[j] % 8;
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        if (!mm_fds[fd].fit)
            continue;
        mm_closing(fd);
        if (!(keep[fd / 8] & 1 << fd % 8))
            sys_close(fd);
    }
    for (int i = 0, first = -1; i < list->count; i++) {
        struct mm_action *a = &list->action[i];
        if (opened[i] < 0) {
            first = a->path[0] ? -1 : first;
            continue;
        }
        int e = 0;
        for (int j = 0; j < a->fd_count && e >= 0; j++) {
            e = mm_move_own(a->fds[j]);
            e = e < 0 ? e : (int)sys(SYS_dup3, opened[i], a->fds[j], a->close_on_exec >> j & 1 ? O_CLOEXEC : 0);
        }
        if (i + 1 == list->count || list->action[i + 1].path[0])
            sys_close(opened[i]);
        if (a->path[0])
            first = a->fds[0];
        if (e >= 0)
            e = a->path[0] ? mm_opened(first, a->flags, 0, 0, NULL) : first < 0 ? -EMFILE : 0;
        if (e < 0) {                   /* one that is not tracked would write what no index hears of */
            for (int j = 0; j < a->fd_count; j++)
                sys_close(a->fds[j]);
            first = a->path[0] ? -1 : first;
            result = e;
            continue;
        }
        for (int j = a->path[0] ? 1 : 0; j < a->fd_count; j++)
            mm_duplicated(first, a->fds[j]);
        if (!a->path[0] || !mm_fds[first].fit)
            continue;
        struct mm_fit *f = mm_fit_at(mm_area, mm_fds[a->fds[0]].fit);
        f->created = 0;                /* known to an index from the start */
        if (a->stream) {
            f->stream = a->stream;
            f->stream_type = 1;
            memcpy(f->stream_attributes, a->mode, sizeof a->mode);
            e = stream_back(a);
            if (e < 0)
                result = e;
        }
    }
    return result;
}

/* Streams opened since the index: their descriptors are closed, so they hold nothing to write. */
static void forget_streams(void)
{
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        struct mm_fit *f = mm_fds[fd].fit ? mm_fit_at(mm_area, mm_fds[fd].fit) : NULL;
        if (f && f->stream && f->process == mm_self_process) {
            FILE *stream = (FILE *)(uintptr_t)f->stream;
            mm_stream_empty(stream);
            stream->_fileno = -1;
        }
    }
}

/* The stream on a descriptor, with its lock, so that no other thread can close it meanwhile; NULL when there is none,
 * or another thread is at it: whoever waits in a read holds the lock for as long as that takes. */
static FILE *hold_stream(int fd)
{
    FILE *stream = NULL;
    mm_lock_own(&mm_streams_lock, MM_LOCK_STREAMS);
    uint32_t fit = __atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE);
    struct mm_fit *f = fit ? mm_fit_at(mm_area, fit) : NULL;
    if (f && f->stream && f->process == mm_self_process) {
        stream = (FILE *)(uintptr_t)f->stream;
        if (ftrylockfile(stream) != 0)
            stream = NULL;
    }
    mm_unlock_own(&mm_streams_lock);
    return stream;
}

/* Output reaches the file. */
static int flush_streams(void)
{
    int result = 0;
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        FILE *stream = hold_stream(fd);
        if (stream) {
            if ((stream->_flags & MM_FILE_PUTTING) && fflush_unlocked(stream) != 0)
                result = -errno;
            funlockfile(stream);
        }
    }
    if (ftrylockfile(stdout) == 0) {
        fflush_unlocked(stdout);
        funlockfile(stdout);
    }
    return result;
}

EXPORT int metamori_active(void) { return active() || mm_ready == 2; }

/* One of several runs that have their checkpoints together: `metamori run` takes them, and nothing goes back while they live. */
#define IN_JOB (mm_area->head->flags & MM_JOB)

EXPORT int metamori_checkpoint_message(const char *message)
{
    if (!following())
        return fail(-ENOSYS);
    if (mm_depth)
        return fail(-EAGAIN);
    if (message && strnlen(message, MM_MESSAGE) == MM_MESSAGE)
        return fail(-EINVAL);
    int saved = errno, e = mm_memory_left_alone();
    e = e < 0 ? e : flush_streams();
    int r = e < 0 ? e : mm_memory_run() || IN_JOB ? mm_controller_call(MM_CALL_CHECKPOINT, 0, message)
          : mm_runtime_call(MM_CALL_CHECKPOINT, 0, (void *)message);
    if (r < 0)
        return fail(r);
    errno = saved;
    return r;
}

EXPORT int metamori_checkpoint(void) { return metamori_checkpoint_message(NULL); }

/* The dynamic loader asks nobody where the bytes of a library are (as when one was written and is closed, wrap_fd.c). */
static void libraries_home(void)
{
    enter();
    for (uint32_t slot = 1; slot < mm_area->head->pif_count; slot++) {
        const struct mm_pif *p = mm_pif_at(mm_area, slot);
        if ((p->flags & (MM_USED | MM_NAMELESS | MM_COPIED)) != MM_USED || is_native(p))
            continue;
        const char *path = mm_path_at(mm_area, p->path);
        if (strstr(strrchr(path, '/'), ".so"))
            mm_home_by_name(slot, path, 0, 0);
    }
    leave();
}

EXPORT int metamori_restore(int index)
{
    if (!following())
        return fail(-ENOSYS);
    if (mm_depth)
        return fail(-EAGAIN);
    if (mm_memory_left_alone() < 0)
        return fail(-ESRCH);
    if (IN_JOB)
        return fail(-EBUSY);
    if (mm_memory_run())               /* the program continues from the checkpoint, in a new process: this one ends here */
        return fail(mm_controller_call(MM_CALL_RESTORE, index, NULL));
    size_t bytes = sizeof(struct mm_actions) + ACTIONS * sizeof(struct mm_action) + ACTIONS * sizeof(int);
    struct mm_actions *list = REAL(mmap)(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED)
        return -1;
    int *opened = (int *)((char *)list + bytes - ACTIONS * sizeof(int)), saved = errno;
    list->room = ACTIONS;
    mm_holding++;
    int held = mm_runtime_hold();      /* nobody else's request is in between */
    mm_depth++;                        /* the run is frozen: this thread alone goes on */
    int r = mm_runtime_call(MM_CALL_RESTORE, index, list);
    if (r == 0) {
        r = descriptors_back(list, opened);
        forget_streams();
        int e = put_into_place(list, opened);
        r = r < 0 ? r : e;
        int t = mm_runtime_call(MM_CALL_RESTORED, index, list);
        r = r < 0 ? r : t;
    }
    mm_depth--;
    mm_runtime_let_go(held);
    sys(SYS_munmap, list, bytes);
    mm_holding--;
    mm_deliver_if_free();
    if (r < 0)
        return fail(r);
    libraries_home();
    errno = saved;
    return 0;
}

/* Files and names of an index, for all processes of the run; descriptors stay open, on the rolled-back content.
 * For a resumed job, whose processes took no part in the index (metamori/levels). */
EXPORT int metamori_v1_files_back(int index)
{
    if (!following())
        return fail(-ENOSYS);
    if (mm_depth)
        return fail(-EAGAIN);
    if (IN_JOB)
        return fail(-EBUSY);
    int saved = errno, e = flush_streams();
    int r = e < 0 ? e : mm_runtime_call(MM_CALL_FILES_BACK, index, NULL);
    if (r < 0)
        return fail(r);
    libraries_home();
    errno = saved;
    return 0;
}

/* This process's own files below a path are no files of the run: the levels' checkpoints and their configuration. */
EXPORT int metamori_v1_ignore(const char *path)
{
    return mm_ignore(path) < 0 ? fail(-ENOMEM) : 0;
}

/* what the header's weak definitions look for */
EXPORT int metamori_v1_checkpoint(int unused)
{
    (void)unused;
    return metamori_checkpoint();
}
EXPORT int metamori_v1_restore(int index) { return metamori_restore(index); }
EXPORT int metamori_v1_active(int unused)
{
    (void)unused;
    return metamori_active();
}
