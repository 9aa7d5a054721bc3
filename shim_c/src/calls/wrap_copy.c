/* wrap_copy.c - calls that move bytes inside the kernel, from file to file or between a file and a pipe.
 *
 * The kernel does them where both ends are in place and nothing is overwritten that an index needs.  Otherwise it first
 * says what it has against the descriptors and places (a call that moves nothing), then the bytes are moved here.
 */
#include "calls/calls.h"

#include <poll.h>
#include <stdlib.h>

#define PIECE (64 * 1024ul)

/* A place that the program gave.  The kernel reads it first, and writes it back when the bytes have moved: it may say EFAULT then. */
static int readable_offset(const off_t *at) { return !at || mm_usable(at, sizeof *at, 2) == sizeof *at; }

static off_t *taken(const off_t *given, off_t *at)
{
    if (given)
        *at = *given;
    return given ? at : NULL;
}

static long given_back(off_t *given, off_t at, long r)
{
    if (given && mm_usable(given, sizeof *given, 1) < sizeof *given)
        return -EFAULT;
    if (given)
        *given = at;
    return r;
}

/* Bytes from a place (a file, or from < 0 position) to a place or a stream; none is lost when the other end is full.
 * Positions that the program did not give move on.  goes_on: what is too much for the other end is asked of it, too: SIGXFSZ.
 * Bytes moved or -errno. */
static long pieces(int from, off_t *from_at, int to, off_t *to_at, size_t count, int goes_on)
{
    char *piece = malloc(count < PIECE ? count + 1 : PIECE);
    if (!piece)
        return -ENOMEM;
    off_t at = from_at ? *from_at : lseek(from, 0, SEEK_CUR), out = to_at ? *to_at : 0;
    long total = 0, e = 0;
    while ((size_t)total < count) {
        size_t n = count - total < PIECE ? count - total : PIECE;
        ssize_t r = pread(from, piece, n, at);
        if (r <= 0) {
            e = r < 0 ? -errno : 0;
            break;
        }
        ssize_t w = to_at ? pwrite(to, piece, r, out) : write(to, piece, r);
        if (w < 0) {
            e = -errno;
            break;
        }
        at += w, out += w, total += w;
        if (w < r && (!goes_on || !w))
            break;
    }
    free(piece);
    if (from_at)
        *from_at = at;
    else
        lseek(from, at, SEEK_SET);
    if (to_at)
        *to_at = out;
    return total ? total : e;
}

static long size_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : st.st_size;
}

/* The bounds that a copy between files has beside those of its descriptors (generic_copy_file_checks). */
static long copy_file(int from, off_t *from_at, int to, off_t *to_at, size_t count)
{
    off_t in = from_at ? *from_at : lseek(from, 0, SEEK_CUR), out = to_at ? *to_at : lseek(to, 0, SEEK_CUR);
    if (in + count < (size_t)in || out + count < (size_t)out)
        return -EOVERFLOW;
    if (in < 0 || out < 0)
        return -EINVAL;
    long size = size_of(from);
    if (size < 0)
        return size;
    if (in >= size)
        return 0;
    if (count > (size_t)(size - in))
        count = size - in;
    if (count > MM_TRANSFER)
        count = MM_TRANSFER;
    struct stat a, b;
    if (sys(SYS_fstat, from, &a) == 0 && sys(SYS_fstat, to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino
        && out + (off_t)count > in && out < in + (off_t)count)
        return -EINVAL;
    return pieces(from, from_at, to, to_at, count, 0);
}

EXPORT ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    from = mm_theirs(from);
    to = mm_theirs(to);
    if (!active() || flags || (!pif_of(from) && !pif_of(to)) || !readable_offset(from_at) || !readable_offset(to_at))
        return REAL(copy_file_range)(from, from_at, to, to_at, count, flags);
    pthread_testcancel();
    int cancels = mm_hold_cancellation();
    enter();
    long r;
    if (mm_kernel_reads(from) && mm_kernel_writes(to)) {
        r = result(sys(SYS_copy_file_range, from, from_at, to, to_at, count, flags));   /* no cancellation in here */
    } else {
        off_t place[2], *source = taken(from_at, &place[0]), *target = taken(to_at, &place[1]);
        off_t in = source ? *source : lseek(from, 0, SEEK_CUR), out = target ? *target : lseek(to, 0, SEEK_CUR);
        in = in < 0 ? 0 : in, out = out < 0 ? 0 : out;
        /* its word on the two, and on the limits; a range that goes beyond all numbers it refuses before these */
        int wraps = (source && in + count < (size_t)in) || out + count < (size_t)out;
        r = sys(SYS_copy_file_range, from, source ? &in : NULL, to, &out, wraps ? count : 0, 0);
        r = r < 0 ? r : copy_file(from, source, to, target, count);
        if (r > 0)
            r = given_back(from_at, place[0], given_back(to_at, place[1], r));
        r = result(r);
    }
    leave();
    pthread_setcancelstate(cancels, NULL);
    return r;
}

static int is_pipe(int fd)
{
    struct stat st;
    return sys(SYS_fstat, fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

static int waits_not(int pipe, unsigned flags) { return flags & SPLICE_F_NONBLOCK || sys(SYS_fcntl, pipe, F_GETFL) & O_NONBLOCK; }

/* By the kernel, which must not wait here: what a checkpoint makes of the file meanwhile, or another's write, it would not heed.
 * -EAGAIN: the pipe is empty, or full.  -ENOSYS: it is not the kernel's to do. */
static long splice_natively(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    enter();
    long r = mm_kernel_reads(from) && mm_kernel_writes(to)
        ? sys(SYS_splice, from, from_at, to, to_at, count, flags | SPLICE_F_NONBLOCK) : -ENOSYS;
    leave();
    return r;
}

/* No more than PIPE_BUF bytes.  A pipe that something was spliced out of or into knows RWF_NOWAIT no more, but takes as much
 * where it can be written at all. */
static long to_pipe(int to, struct iovec *v, int wait)
{
    long w = sys(SYS_pwritev2, to, v, 1, -1, -1, wait ? 0 : RWF_NOWAIT);
    if (w != -EOPNOTSUPP || wait)
        return w;
    struct pollfd room = { .fd = to, .events = POLLOUT };
    w = sys(SYS_poll, &room, 1, 0);
    return w > 0 ? sys(SYS_pwritev2, to, v, 1, -1, -1, 0) : w < 0 ? w : -EAGAIN;
}

/* The waits of splice, in which a thread may be cancelled as in the C library's own: nothing is held.  cancels: the program's state, or
 * that nobody is cancelled there. */
static int begin_cancellable(int cancels)
{
    int type;
    pthread_setcancelstate(cancels, NULL);
    REAL(pthread_setcanceltype)(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    return type;
}

static long end_cancellable(int type, long r)
{
    REAL(pthread_setcanceltype)(type, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return r;
}

/* For room in a pipe, by a sendfile of nothing. */
static long wait_for_room(int to, int from, int cancels)
{
    off_t nothing = 0;
    int type = begin_cancellable(cancels);
    return end_cancellable(type, sys(SYS_sendfile, to, from, &nothing, 0));
}

/* For bytes in one, by taking one to where nothing can be: -EFAULT when it is there.  0: none will come. */
static long wait_for_bytes(int from, int cancels)
{
    struct iovec nowhere = { (void *)8, 1 };
    int type = begin_cancellable(cancels);
    return end_cancellable(type, sys(SYS_vmsplice, from, &nowhere, 1, 0));
}

/* As much as the pipe takes without waiting; for the first byte it is waited, before anything is read: it may be overwritten
 * meanwhile. */
static long splice_out(int from, off_t *from_at, int to, size_t count, unsigned flags, int cancels)
{
    char piece[MM_BLOCK];
    int wait = !waits_not(to, flags);
    long total = 0, e = wait ? wait_for_room(to, from, cancels) : 0;
    if (e < 0 && e != -EINVAL)         /* Linux 5.10 and 5.11 send nothing to a pipe */
        return e;
    off_t at = from_at ? *from_at : lseek(from, 0, SEEK_CUR);
    while ((size_t)total < count) {
        size_t n = sizeof piece - at % sizeof piece;
        ssize_t r = pread(from, piece, n < count - total ? n : count - total, at);
        if (r <= 0) {
            e = r < 0 ? -errno : 0;
            break;
        }
        long w = to_pipe(to, &(struct iovec){ piece, r }, wait && !total && e == -EINVAL);
        if (w == -EAGAIN && wait && !total) {          /* another was faster: what was read may be old by the time there is room */
            e = wait_for_room(to, from, cancels);
            if (e < 0 && e != -EINVAL)
                return e;
            continue;
        }
        if (w <= 0) {
            e = w;
            break;
        }
        at += w, total += w;
    }
    if (from_at)
        *from_at = at;
    else if (total)
        lseek(from, at, SEEK_SET);
    return total ? total : e;
}

static long to_pipe_as_there_is_room(int from, off_t *at, int to, size_t count, unsigned flags, int cancels)
{
    long r = splice_natively(from, at, to, NULL, count, flags);
    return r == -ENOSYS || (r == -EAGAIN && !waits_not(to, flags)) ? splice_out(from, at, to, count, flags, cancels) : r;
}

/* The bytes are moved here; a full pipe or socket (waits) must not hold up a checkpoint. */
static long sent_by_us(int to, int from, off_t *at, size_t count, int waits)
{
    off_t in = at ? *at : lseek(from, 0, SEEK_CUR), probed = in, sum;
    /* a range that goes beyond all numbers is refused before the kernel looks at how far the filesystem goes */
    int wraps = (ssize_t)count < 0 || __builtin_add_overflow(in, (off_t)count, &sum);
    int far = in >= INT32_MAX;         /* where no file reaches it refuses to send some bytes, not none: that it does one byte further on */
    probed += far && count && !wraps;
    long r = sys(SYS_sendfile, to, from, at || far || (wraps && in >= 0) ? &probed : NULL, wraps ? count : 0);
    if (r == 0 && (wraps || (!pif_of(from) && !mm_is_file(from))))
        r = -EINVAL;
    if (r < 0)
        return r;
    if (count > MM_TRANSFER)
        count = MM_TRANSFER;
    int cancels = mm_hold_cancellation();
    if (!waits)
        enter();
    r = is_pipe(to) ? to_pipe_as_there_is_room(from, at, to, count, 0, PTHREAD_CANCEL_DISABLE)
      : pieces(from, at, to, NULL, count, mm_is_file(to));
    if (!waits)
        leave();
    pthread_setcancelstate(cancels, NULL);
    return r;
}

static int is_stream_socket(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* What a socket may still have to take of what is overwritten meanwhile. */
#define STRETCH (4 * PIECE)

/* To a socket, which may take it slowly: natively each page is looked at when its turn comes.  By the kernel, as long as the
 * file is in place. */
static long sent_in_stretches(int to, int from, off_t *at, size_t count)
{
    long sent = 0, r = 0;
    count = count < MM_TRANSFER ? count : MM_TRANSFER;
    for (int in_place = 1; in_place && (size_t)sent < count;) {
        size_t n = count - sent < STRETCH ? count - sent : STRETCH;
        r = sys(SYS_sendfile, to, from, at, n);
        sent += r > 0 ? r : 0;
        if (r < (long)n)
            return sent ? sent : r;
        MM_STOP("copy.stretch");
        enter();
        in_place = mm_kernel_reads(from);
        leave();
    }
    r = (size_t)sent < count ? sent_by_us(to, from, at, count - sent, 1) : 0;
    return sent + (r > 0 ? r : 0);
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t count)
{
    from = mm_theirs(from);
    to = mm_theirs(to);
    if (!active() || (!pif_of(from) && !pif_of(to)) || !readable_offset(at))
        return REAL(sendfile)(to, from, at, count);
    int waits = !pif_of(to);
    long r = 0;
    enter();
    int kernel = mm_kernel_reads(from) && mm_kernel_writes(to), pipe = waits && is_pipe(to);
    if (kernel && !waits)
        r = REAL(sendfile)(to, from, at, count);
    leave();
    if (kernel && !waits)
        return r;
    if (kernel && !pipe && (count <= STRETCH || (ssize_t)count < 0 || !is_stream_socket(to)))
        return REAL(sendfile)(to, from, at, count);
    off_t place, *source = taken(at, &place);
    r = kernel && !pipe ? sent_in_stretches(to, from, source, count) : sent_by_us(to, from, source, count, waits);
    return result(given_back(at, place, r));
}

static long access_of(int fd)
{
    long flags = sys(SYS_fcntl, fd, F_GETFL);
    return flags < 0 ? flags : flags & O_ACCMODE;
}

/* What the pipe holds is looked at through a pipe of ours (tee), and taken out once it is in the file.  -EAGAIN: it is empty. */
static long splice_in(int from, int to, off_t *to_at, size_t count)
{
    int own[2];
    char *piece = malloc(PIECE);
    long total = 0, e = piece ? mm_pipe_spare(own) : -ENOMEM;
    if (e < 0) {
        free(piece);
        return e;
    }
    off_t at = to_at ? *to_at : 0;
    while ((size_t)total < count) {
        size_t n = count - total < PIECE ? count - total : PIECE;
        long seen = sys(SYS_tee, from, own[1], n, SPLICE_F_NONBLOCK), got = 0, more;
        while (seen > 0 && got < seen && (more = sys(SYS_read, own[0], piece + got, seen - got)) > 0)
            got += more;
        if (seen <= 0) {
            e = seen;
            break;
        }
        ssize_t w = to_at ? pwrite(to, piece, got, at) : write(to, piece, got);
        if (w < 0) {
            e = -errno;
            break;
        }
        for (long out = 0; out < w && (more = sys(SYS_read, from, piece, w - out)) > 0;)
            out += more;
        at += w, total += w;
        if (!w)
            break;
    }
    mm_close_spare(own[0]);
    mm_close_spare(own[1]);
    free(piece);
    if (to_at)
        *to_at = at;
    return total ? total : e;
}

#define SPLICE_KNOWN (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

EXPORT ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    from = mm_theirs(from);
    to = mm_theirs(to);
    if (!active() || (!pif_of(from) && !pif_of(to)))
        return REAL(splice)(from, from_at, to, to_at, count, flags);
    int out = is_pipe(to), in = is_pipe(from);
    off_t *at = out ? from_at : to_at, place, sum;
    /* what it would refuse is left to the kernel */
    if (in == out || !count || (flags & ~SPLICE_KNOWN) || (out ? to_at : from_at) || !readable_offset(at)
        || (access_of(from) & O_WRONLY) || access_of(to) == O_RDONLY || access_of(to) == O_ACCMODE
        || (in && (open_flags(to) & O_APPEND))
        || (at && (*at < 0 || __builtin_add_overflow(*at, (off_t)count, &sum))))
        return REAL(splice)(from, from_at, to, to_at, count, flags);
    pthread_testcancel();
    int cancels = mm_hold_cancellation();
    off_t *ours = taken(at, &place);
    long r = out ? to_pipe_as_there_is_room(from, ours, to, count, flags, cancels)
           : splice_natively(from, NULL, to, ours, count, flags);
    if (in && (r == -ENOSYS || (r == -EAGAIN && !waits_not(from, flags))))
        while ((r = splice_in(from, to, ours, count)) == -EAGAIN && !waits_not(from, flags)
               && (r = wait_for_bytes(from, cancels)) == -EFAULT)
            ;
    pthread_setcancelstate(cancels, NULL);
    return result(r < 0 ? r : given_back(at, place, r));
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_copy(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
