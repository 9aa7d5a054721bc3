/* wrap_stream.c - stdio streams, at native speed.
 *
 * glibc's stdio reaches the kernel by internal calls that no symbol shows.  Its two exported tables of file operations
 * are pointed at our calls instead: every stream, narrow or wide, then reads, writes, seeks, asks its size and closes
 * through the wrappers.  fopen itself is open + fdopen, so that "w" truncates under control.
 * A stream that an index knows outlives fclose: its memory stays, so that the FILE pointer works again after a restore.
 */
#include "calls/calls.h"
#include "process/streams.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <netdb.h>
#include <stdlib.h>
#include <stdio_ext.h>
#include <sys/mman.h>

extern int __vsnprintf_chk(char *text, size_t size, int flag, size_t room, const char *format, va_list list);
extern int __vasprintf_chk(char **text, int flag, const char *format, va_list list);

/* positions in struct _IO_jump_t, unchanged from glibc 2.1 on */
enum { SLOT_READ = 14, SLOT_WRITE, SLOT_SEEK, SLOT_CLOSE, SLOT_STAT };
/* glibc's _IO_FLAGS2_NOTCANCEL (mode "c"), and _IO_FLAGS2_CLOEXEC, which stays when the stream is opened again without */
enum { NOT_CANCELLED = 2, OPENED_WITH_E = 0x40 };
/* its _IO_LINKED (to be flushed at the end) and _IO_IS_FILEBUF */
enum { LINKED = 0x80, OF_A_FILE = 0x2000 };

/* Whoever is cancelled in a call of ours leaves the stream locked. */
static int hold_if(int holds)
{
    int before = PTHREAD_CANCEL_DISABLE;
    if (UNLIKELY(holds))
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static void let_go_if(int held, int before)
{
    if (UNLIKELY(held))
        pthread_setcancelstate(before, NULL);
}

static ssize_t slot_read(FILE *f, void *buffer, ssize_t count)
{
    int held = f->_flags2 & NOT_CANCELLED, before = hold_if(held);
    ssize_t r = read(f->_fileno, buffer, count);
    let_go_if(held, before);
    return r;
}

static ssize_t slot_write(FILE *f, const void *buffer, ssize_t count)
{
    ssize_t left = count;
    int held = f->_flags2 & NOT_CANCELLED, before = hold_if(held);
    while (left > 0) {
        ssize_t r = write(f->_fileno, buffer, left);
        if (r < 0) {
            f->_flags |= 0x20;         /* _IO_ERR_SEEN */
            break;
        }
        left -= r;
        buffer = (const char *)buffer + r;
    }
    let_go_if(held, before);
    if (f->_offset >= 0)
        f->_offset += count - left;
    return count - left;
}

static off64_t slot_seek(FILE *f, off64_t at, int whence) { return lseek(f->_fileno, at, whence); }
static int slot_close(FILE *f)             /* glibc's is never cancelled */
{
    int before = hold_if(1), r = close(f->_fileno);
    let_go_if(1, before);
    return r;
}
static int slot_stat(FILE *f, void *st) { return fstat(f->_fileno, st); }

int mm_streams_followed;

/* Both tables, or neither. */
static int patch(void **narrow, void **wide)
{
    static void *const ours[5] = { slot_read, slot_write, slot_seek, slot_close, slot_stat };
    static const char *const names[5] = { "_IO_file_read", "_IO_file_write", "_IO_file_seek", "_IO_file_close",
                                          "_IO_file_stat" };
    if (!narrow || !wide)
        return 0;
    for (int i = 0; i < 5; i++) {
        void *theirs = REAL(dlsym)(RTLD_DEFAULT, names[i]);
        if (narrow[SLOT_READ + i] != theirs || wide[SLOT_READ + i] != theirs)
            return 0;
    }
    void **low = narrow < wide ? narrow : wide, **high = narrow < wide ? wide : narrow;
    uintptr_t first = (uintptr_t)low & ~4095ul, last = ((uintptr_t)(high + SLOT_STAT + 1) + 4095) & ~4095ul;
    if (last - first > 2 * 4096 || sys(SYS_mprotect, first, last - first, PROT_READ | PROT_WRITE) < 0)
        return 0;
    for (int i = 0; i < 5; i++)
        narrow[SLOT_READ + i] = wide[SLOT_READ + i] = ours[i];
    sys(SYS_mprotect, first, last - first, PROT_READ);
    return 1;
}

void mm_streams_init(void)
{
    mm_streams_followed = patch(REAL(dlsym)(RTLD_DEFAULT, "_IO_file_jumps"), REAL(dlsym)(RTLD_DEFAULT, "_IO_wfile_jumps"));
    if (!mm_streams_followed)
        mm_say("this libc's stdio tables are unknown: what goes through FILE streams is not tracked");
}

/* open(2) flags of an fopen mode, or -1 */
static int flags_of_mode(const char *mode)
{
    int flags = mode[0] == 'r' ? O_RDONLY : mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
              : mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND : -1;
    if (flags < 0)
        return -1;
    for (int i = 1; i < 7 && mode[i] && mode[i] != ','; i++) {
        if (mode[i] == '+')
            flags = (flags & ~O_ACCMODE) | O_RDWR;
        else if (mode[i] == 'x')
            flags |= O_EXCL;
        else if (mode[i] == 'e')
            flags |= O_CLOEXEC;
    }
    return flags;
}

static int asks_for(char letter, const char *mode)
{
    for (int i = 1; i < 7 && mode[i] && mode[i] != ','; i++)
        if (mode[i] == letter)
            return 1;
    return 0;
}

static int is_tracked(int fd) { return mm_active && (unsigned)fd < MM_FDS && mm_fds[fd].fit; }

static void register_stream(FILE *f, const char *mode)
{
    int fd = f->_fileno;
    if (!active() || !is_tracked(fd))
        return;
    struct mm_fit *fit = mm_fit_at(mm_area, mm_fds[fd].fit);
    mm_lock_own(&mm_streams_lock, MM_LOCK_STREAMS);
    MM_STOP("streams.held");
    fit->stream = (uint64_t)(uintptr_t)f;
    fit->stream_type = 1;
    fit->process = mm_self_process;
    strncpy(fit->stream_attributes, mode, sizeof fit->stream_attributes - 1);
    mm_unlock_own(&mm_streams_lock);
}

/* An fopen mode for a descriptor, or for /dev/null, which is there: without x, and without m, a wish by which glibc reads from
 * a mapping of its own, where it finds the bytes in place.  NULL when it is too long for any name of an encoding. */
static const char *plain_mode(const char *mode, char room[256])
{
    size_t n = 0, how = strcspn(mode, ",");
    for (size_t i = 0; mode[i]; i++) {
        if (n == 255)
            return NULL;
        if (i == 0 || i > how || (mode[i] != 'x' && mode[i] != 'm'))   /* the first one says what it is, or that it is none */
            room[n++] = mode[i];
    }
    room[n] = 0;
    return room;
}

/* ",ccs=" is heard by fopen only: its stream gets the descriptor in place of the one that it has opened. */
static FILE *encoded_on(int fd, const char *mode)
{
    char room[256];
    FILE *f = REAL(fopen)("/dev/null", plain_mode(mode, room) ? room : "");
    if (f) {
        close(f->_fileno);
        f->_fileno = fd;
    }
    return f;
}

static FILE *stream_on(int fd, const char *mode)
{
    char room[256];
    return REAL(fdopen)(mm_theirs(fd), plain_mode(mode, room) ? room : "");
}

static FILE *open_stream(const char *path, const char *mode)
{
    int flags = flags_of_mode(mode);
    if (flags < 0) {
        errno = EINVAL;
        return NULL;
    }
    int held = asks_for('c', mode), before = hold_if(held), fd = open(path, flags, 0666);
    let_go_if(held, before);
    if (fd < 0)
        return NULL;
    FILE *f = strstr(mode, ",ccs=") ? encoded_on(fd, mode) : stream_on(fd, mode);
    if (!f) {
        int saved = errno;
        close(fd);
        errno = saved;
        return NULL;
    }
    /* as glibc's fopen notes it, and its fdopen does not */
    f->_flags2 |= (held ? NOT_CANCELLED : 0) | (flags & O_CLOEXEC ? OPENED_WITH_E : 0);
    if (mode[0] == 'a' && !(flags & O_RDWR))
        lseek(fd, 0, SEEK_END);
    register_stream(f, mode);
    return f;
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    return active() || mm_ready == 2 ? open_stream(path, mode) : REAL(fopen)(path, mode);
}

/* glibc's opens the file that it is given by a call inside itself. */
EXPORT FILE *setmntent(const char *path, const char *mode)
{
    char how[16];
    if (!active() || strlen(mode) > sizeof how - 3)
        return REAL(setmntent)(path, mode);
    strcpy(stpcpy(how, mode), "ce");
    FILE *f = open_stream(path, how);
    if (f)
        __fsetlocking(f, FSETLOCKING_BYCALLER);
    return f;
}

/* "a": glibc sets O_APPEND by a call inside itself, and seeks then; whoever writes meanwhile has to know.  Not where it refuses. */
static int begins_to_append(int fd, const char *mode)
{
    if (mode[0] != 'a' || !is_tracked(fd) || !writable(fd) || (asks_for('+', mode) && !readable(fd)))
        return 0;
    long flags = sys(SYS_fcntl, fd, F_GETFL);
    return flags >= 0 && !(flags & O_APPEND) && mm_set_flags(fd, (int)flags | O_APPEND) == 0;
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
    int appends = begins_to_append(fd, mode);
    FILE *f = stream_on(fd, mode);
    if (f && appends && !asks_for('+', mode))
        lseek(fd, 0, SEEK_END);
    if (f)
        register_stream(f, mode);
    return f;
}

/* Closed for the program, but its memory kept: the stream as it stands right after fopen, without a descriptor. */
static int close_but_keep(FILE *f)
{
    int failed = fflush(f), saved = errno, fd = f->_fileno;
    mm_stream_empty(f);
    f->_fileno = -1;
    f->_flags |= 0x0c;                 /* neither reads nor writes */
    if (close(fd) < 0)
        return -1;
    errno = saved;
    return failed;
}

/* A stream that is closed, by that or by glibc, which then lets it go.  Those of no file (fopencookie, fmemopen) have -2. */
static int outlived(const FILE *f) { return f->_fileno == -1 && (f->_flags & (LINKED | OF_A_FILE)) == (LINKED | OF_A_FILE); }

/* What glibc leaves where it cannot open again: a stream that is closed, and not freed. */
static FILE *not_reopened(FILE *f, int known, int error)
{
    if (known)
        close_but_keep(f);
    else
        REAL(freopen)("", "r", f);
    errno = error;
    return NULL;
}

/* On /dev/null.  Where no number is left beside that of the file, which is open already, the stream's own is free once it failed. */
static int made_anew(FILE *f, const char *mode)
{
    char room[256];
    const char *plain = plain_mode(mode, room) ? room : "";
    return REAL(freopen)("/dev/null", plain, f) || (errno == EMFILE && REAL(freopen)("/dev/null", plain, f));
}

/* glibc reopens by internal calls: let it make the stream anew on /dev/null, then put the file in that place. */
EXPORT FILE *freopen(const char *path, const char *mode, FILE *f)
{
    char link[40];
    int flags = flags_of_mode(mode);
    if ((!active() && mm_ready != 2) || !f || !(f->_flags & OF_A_FILE) || (f->_fileno < 0 && !path))
        return REAL(freopen)(path, mode, f);
    int old = f->_fileno, known = outlived(f);      /* an index that knew the FILE still knows it */
    if (!path) {
        snprintf(link, sizeof link, "/proc/thread-self/fd/%d", old);
        path = link;
        flags = flags < 0 ? flags : flags & ~(O_CREAT | O_EXCL);
    }
    fflush(f);
    int fd = flags < 0 ? fail(-EINVAL) : open(path, old < 0 ? flags : flags & ~O_CLOEXEC, 0666), saved = errno;
    if (fd >= 0 && fd == old) {        /* the stream's was closed behind it: its number is about to be given away */
        fd = dup(old);
        saved = errno;
        close(old);
    }
    if (is_tracked(old)) {
        known = mm_fit_at(mm_area, mm_fds[old].fit)->created < mm_area->head->epoch;
        enter();
        mm_closing(old);
        leave();
    }
    if (fd < 0)
        return not_reopened(f, known, saved);
    if (!made_anew(f, mode)) {
        saved = errno;
        close(fd);
        errno = saved;
        return NULL;
    }
    if (flags & O_CLOEXEC)
        f->_flags2 |= OPENED_WITH_E;
    if (old < 0) {
        close(f->_fileno);
        f->_fileno = fd;
    } else {
        int r = dup3(fd, f->_fileno, f->_flags2 & OPENED_WITH_E ? O_CLOEXEC : 0);
        close(fd);
        if (r < 0)
            return NULL;
    }
    if (mode[0] == 'a' && !(flags & O_RDWR))
        lseek(f->_fileno, 0, SEEK_END);
    f->_offset = -1;
    register_stream(f, mode);
    if (known && active() && is_tracked(f->_fileno))
        mm_fit_at(mm_area, mm_fds[f->_fileno].fit)->created = 0;
    return f;
}

/* glibc writes it by a stream of its own on a copy of the descriptor, so that stderr does not become narrow: a copy that
 * nobody told us of. */
EXPORT void perror(const char *text)
{
    char line[1024], why[256];
    int fd = stderr->_fileno, saved = errno;
    if (LIKELY(!mm_active || (unsigned)fd >= MM_FDS || !mm_fds[fd].fit) || fwide(stderr, 0) != 0) {
        REAL(perror)(text);
        return;
    }
    const char *reason = strerror_r(saved, why, sizeof why);
    int n = text && *text ? snprintf(line, sizeof line, "%s: %s\n", text, reason) : snprintf(line, sizeof line, "%s\n", reason);
    if (n >= (int)sizeof line) {
        fprintf(stderr, "%s: %s\n", text, reason);
        return;
    }
    if (write(fd, line, n) < 0)
        stderr->_flags |= 0x20;        /* _IO_ERR_SEEN */
    errno = saved;
}

/* glibc's write by calls inside itself. */
EXPORT void herror(const char *text)
{
    if (LIKELY(!is_tracked(STDERR_FILENO))) {
        REAL(herror)(text);
        return;
    }
    int says = text && *text;
    const char *why = hstrerror(h_errno);
    struct iovec line[] = { { (char *)text, says ? strlen(text) : 0 }, { ": ", says ? 2 : 0 }, { (char *)why, strlen(why) },
                            { "\n", 1 } };
    writev(STDERR_FILENO, line, 4);
}

/* Without malloc, which may be what has failed. */
EXPORT void backtrace_symbols_fd(void *const *frames, int count, int fd)
{
    int between = is_tracked(fd) ? (int)sys(SYS_memfd_create, "metamori", MFD_CLOEXEC) : -1;
    if (LIKELY(between < 0)) {
        REAL(backtrace_symbols_fd)(frames, count, fd);
        return;
    }
    char piece[512];
    REAL(backtrace_symbols_fd)(frames, count, between);
    for (long at = 0, n; (n = sys(SYS_pread64, between, piece, sizeof piece, at)) > 0; at += n)
        if (write(fd, piece, n) < 0)
            break;
    sys_close(between);
}

/* From glibc 2.37 on by no stream.  A short line takes no memory, as there: handlers of signals write such. */
static int print_on(int fd, int flag, int checks, const char *format, va_list list)
{
    char line[1024], *text = line;
    va_list again;
    va_copy(again, list);
    int n = checks ? __vsnprintf_chk(line, sizeof line, flag, sizeof line, format, list) : vsnprintf(line, sizeof line, format, list);
    if (n >= (int)sizeof line)
        n = checks ? __vasprintf_chk(&text, flag, format, again) : vasprintf(&text, format, again);
    va_end(again);
    int r = n, saved = errno;
    for (long done = 0, put; r >= 0 && done < n; done += put)
        if ((put = write(fd, text + done, n - done)) <= 0)
            r = -1, saved = errno;
    if (n >= 0 && text != line)
        free(text);
    errno = saved;
    return r;
}

EXPORT int vdprintf(int fd, const char *format, va_list list)
{
    return is_tracked(fd) ? print_on(fd, 0, 0, format, list) : REAL(vdprintf)(fd, format, list);
}

EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list list)
{
    return is_tracked(fd) ? print_on(fd, flag, 1, format, list) : REAL(__vdprintf_chk)(fd, flag, format, list);
}

EXPORT int dprintf(int fd, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int r = vdprintf(fd, format, list);
    va_end(list);
    return r;
}

EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int r = __vdprintf_chk(fd, flag, format, list);
    va_end(list);
    return r;
}

EXPORT int fclose(FILE *f)
{
    int fd = f ? f->_fileno : -1, standard = f == stdin || f == stdout || f == stderr;
    if (UNLIKELY(fd < 0) && mm_active && f && !standard && outlived(f))
        return EOF;                    /* it could not be opened again (freopen) */
    if (LIKELY(!is_tracked(fd)) || standard)
        return REAL(fclose)(f);
    struct mm_fit *fit = mm_fit_at(mm_area, mm_fds[fd].fit);
    if (fit->stream == (uint64_t)(uintptr_t)f && fit->created < mm_area->head->epoch && fit->process == mm_self_process)
        return close_but_keep(f);
    mm_lock_own(&mm_streams_lock, MM_LOCK_STREAMS);
    fit->stream = 0;
    mm_unlock_own(&mm_streams_lock);
    return REAL(fclose)(f);
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_stream(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
