/* wrap_fd_passing.c - descriptors that travel: over unix sockets, and by pidfd_getfd.
 *
 * A receiver in the run goes on with the same description (descriptors.c asks the kernel which it is).  Whether the
 * receiver is in the run nobody can say for sure, so the bytes are in place before they go; and if the other end belongs
 * to somebody else, what he writes is found by copying the file whole at each checkpoint.
 */
#include "calls/calls.h"

#include <sys/pidfd.h>
#include <sys/socket.h>

static int peer_in_run(int socket)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && mm_process_of(mm_area, (uint32_t)peer.pid);
}

static void leaves(int socket, int fd)
{
    if ((unsigned)fd >= MM_FDS || !mm_fds[fd].fit)
        return;
    enter();
    uint32_t slot = pif_of(fd);
    if (slot && !is_native(mm_pif_at(mm_area, slot)))
        mm_stay_home(slot, fd, 0, 0);
    if (slot && !peer_in_run(socket))
        mm_show(fd, slot);
    mm_give_position(fd);
    leave();
}

/* what is done with each descriptor of a message */
static void each_of(const struct msghdr *message, int socket, int sends)
{
    if (!message || !message->msg_control || message->msg_controllen < sizeof(struct cmsghdr))
        return;
    if (sends && mm_usable(message->msg_control, message->msg_controllen, 0) < message->msg_controllen)
        return;                        /* the kernel says what is wrong with it */
    struct msghdr *m = (struct msghdr *)message;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
            continue;
        int fds[256];                  /* more the kernel does not take */
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        n = n < 256 ? n : 256;
        memcpy(fds, CMSG_DATA(c), n * sizeof(int));
        for (size_t i = 0; i < n; i++) {
            if (sends)
                leaves(socket, fds[i]);
            else
                mm_came(fds[i], 1);
        }
    }
}

static void received(const struct msghdr *message)
{
    int saved = errno;
    each_of(message, -1, 0);
    errno = saved;
}

EXPORT ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    if (active() && message && mm_usable(message, sizeof *message, 0) == sizeof *message && message->msg_controllen)
        each_of(message, socket, 1);
    return mm_sendmsg_held_up(socket, message, flags);
}

EXPORT int sendmmsg(int socket, struct mmsghdr *list, unsigned count, int flags)
{
    for (unsigned i = 0; active() && list && i < count && mm_usable(&list[i], sizeof *list, 0) == sizeof *list; i++)
        if (list[i].msg_hdr.msg_controllen)
            each_of(&list[i].msg_hdr, socket, 1);
    return REAL(sendmmsg)(socket, list, count, flags);
}

EXPORT ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
    ssize_t r = mm_recvmsg_held_up(socket, message, flags);
    if (r >= 0 && message->msg_controllen && active())
        received(message);
    return r;
}

EXPORT int recvmmsg(int socket, struct mmsghdr *list, unsigned count, int flags, struct timespec *timeout)
{
    int r = REAL(recvmmsg)(socket, list, count, flags, timeout);
    for (int i = 0; i < r && active(); i++)
        if (list[i].msg_hdr.msg_controllen)
            received(&list[i].msg_hdr);
    return r;
}

EXPORT int pidfd_getfd(int pidfd, int fd, unsigned flags)
{
    int r = REAL(pidfd_getfd)(pidfd, fd, flags);
    if (r >= 0 && active()) {
        int saved = errno;
        mm_came(r, 1);
        errno = saved;
    }
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_pass(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
