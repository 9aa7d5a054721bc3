/* wrap_pid.c - a program that came back with its memory keeps the process and thread numbers that it knows.
 *
 * The kernel gives a new process new numbers, and what the program remembers of its own - in locks, in lock files' names, in
 * thread descriptors - cannot be found and changed.  So the old ones stay, and calls that take or give a number translate.
 * In every other process each of these is the kernel's own answer.
 * A call that has a number of the kernel's in hand says so by mm_numbers: no image is made with it (memory/numbers.c).
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>

static int renamed(void) { return mm_memory_head && ENGINE->known_pid; }
/* not so a child that it forked */
static int renamed_here(void) { return renamed() && ENGINE->pid == (uint32_t)sys_getpid(); }

/* Of a thread of this process, or of any process. */
pid_t mm_real_thread_number(pid_t known)
{
    if (known > 0 && renamed())
        for (uint32_t i = 0; i < ENGINE->renamed_count; i++)
            if (ENGINE->renamed[i].known == (uint32_t)known)
                return (pid_t)ENGINE->renamed[i].real;
    return known > 0 && mm_have_come_back() ? (pid_t)mm_real_number(mm_area, (uint32_t)known) : known;
}

static pid_t real_number(pid_t known)
{
    pid_t real = mm_number_in(known);
    return known > 0 && real == known ? mm_real_thread_number(known) : real;
}

/* The kernel's number in place of that which the program knows of a process or a thread; where the name goes on. */
static const char *number_in_name(char **to, const char *name)
{
    const char *end = name;
    uint64_t known = 0;
    while (*end >= '0' && *end <= '9' && known < INT32_MAX)
        known = known * 10 + (uint64_t)(*end++ - '0');
    if (!known || known > INT32_MAX || name[0] == '0' || (*end && *end != '/'))
        return name;
    *to += sprintf(*to, "%d", real_number((pid_t)known));
    return end;
}

/* Below /proc/NUMBER and /proc/NUMBER/task/NUMBER, in room, of MM_PROC_NAME bytes; NULL: it is no such name.  The caller has said
 * by mm_numbers that it has a number in hand. */
static const char *name_in_proc(const char *name, char *room)
{
    static const char proc[] = "/proc/", task[] = "/task/";
    size_t usable = mm_usable(name, MM_PROC_NAME / 2, 0);
    if (strnlen(name, usable) == usable || strncmp(name, proc, sizeof proc - 1) != 0)
        return NULL;
    char *to = stpcpy(room, proc);
    const char *rest = number_in_name(&to, name + sizeof proc - 1);
    if (rest == name + sizeof proc - 1)
        return NULL;
    if (strncmp(rest, task, sizeof task - 1) == 0) {
        to = stpcpy(to, task);
        rest = number_in_name(&to, rest + sizeof task - 1);
    }
    strcpy(to, rest);
    return room;
}

/* How a call ends that asks for a process by a name in /proc: 0, a descriptor or -errno; MM_NOT_IN_PROC: it does not.  st: of a
 * stat, else it opens. */
long mm_in_proc(const char *name, int flags, struct stat *st)
{
    char room[MM_PROC_NAME];
    const char *real;
    long r = MM_NOT_IN_PROC;
    uint32_t outer = mm_numbers;
    mm_numbers = 1;
    if ((real = name_in_proc(name, room)))
        r = st ? sys(SYS_newfstatat, AT_FDCWD, real, st, flags) : sys(SYS_openat, AT_FDCWD, real, flags, 0);
    mm_numbers = outer;
    return r;
}

/* The same for a call that goes on as ever: the path that the kernel is to be given.  Within MM_NUMBERS. */
const char *mm_to_proc(const char *path, char *room)
{
    const char *real = name_in_proc(path, room);
    return real ? real : path;
}

/* r: of a readlink.  What the kernel calls this process is not what the program does. */
static ssize_t to_self(ssize_t r, const char *path, char *to, size_t size)
{
    char number[12];
    if (LIKELY(r <= 0 || !mm_memory_head) || !renamed_here() || strcmp(path, "/proc/self") != 0)
        return r;
    size_t length = (size_t)sprintf(number, "%d", getpid());
    length = length < size ? length : size;
    memcpy(to, number, length);
    return (ssize_t)length;
}

EXPORT ssize_t readlinkat(int dir, const char *given, char *to, size_t size)
{
    return to_self(MM_BY_NAME(ssize_t, path, REAL(readlinkat)(dir, path, to, size)), given, to, size);
}
EXPORT ssize_t readlink(const char *given, char *to, size_t size)
{
    return to_self(MM_BY_NAME(ssize_t, path, REAL(readlink)(path, to, size)), given, to, size);
}
EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t size, size_t room)
{
    return size > room ? REAL(__readlinkat_chk)(dir, path, to, size, room) : readlinkat(dir, path, to, size);
}
EXPORT ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room)
{
    return size > room ? REAL(__readlink_chk)(path, to, size, room) : readlink(path, to, size);
}

EXPORT int faccessat(int dir, const char *given, int mode, int flags)
{
    return MM_BY_NAME(int, path, REAL(faccessat)(dir, path, mode, flags));
}

EXPORT int access(const char *given, int mode) { return MM_BY_NAME(int, path, REAL(access)(path, mode)); }
EXPORT int euidaccess(const char *given, int mode) { return MM_BY_NAME(int, path, REAL(euidaccess)(path, mode)); }
EXPORT DIR *opendir(const char *given) { return MM_BY_NAME(DIR *, path, REAL(opendir)(path)); }

EXPORT pid_t getpid(void) { return UNLIKELY(renamed_here()) ? (pid_t)ENGINE->known_pid : (pid_t)sys_getpid(); }

EXPORT pid_t getppid(void) { return MM_NUMBERS(pid_t, mm_number_out((pid_t)sys(SYS_getppid))); }

EXPORT pid_t gettid(void)
{
    return UNLIKELY(mm_known_tid && renamed_here()) ? (pid_t)mm_known_tid : (pid_t)sys_gettid();
}

static int may_be_stopped(pid_t real)
{
    int found = 0;
    for (uint32_t i = 1; i < mm_area->head->process_high; i++) {
        const struct mm_process *p = mm_proc(mm_area, i);
        pid_t other = (pid_t)__atomic_load_n(&p->pid, __ATOMIC_ACQUIRE);
        if (!other || (uint32_t)other == (uint32_t)sys_getpid()
            || (real > 0 ? other != real : real < -1 && sys(SYS_getpgid, other) != -real))
            continue;
        found = 1;
        if (__atomic_load_n(&p->executing, __ATOMIC_ACQUIRE) || __atomic_load_n(&p->calls, __ATOMIC_ACQUIRE))
            return 0;
    }
    return (found && real > 0) || !mm_unborn(mm_area);
}

/* A process that is stopped while it begins, becomes another program or is in a call could not be saved before it is continued:
 * the signal comes when it is through.  Nobody can tell: when it would have come was not certain either. */
static void await_rest(pid_t real, int number)
{
    if (LIKELY(!mm_memory_head) || (number != SIGSTOP && number != SIGTSTP && number != SIGTTIN && number != SIGTTOU))
        return;
    for (int waited = 0; !may_be_stopped(real) && waited < 10000; waited++)
        sys_pause_us(100);
}

EXPORT int kill(pid_t pid, int number)
{
    await_rest(real_number(pid), number);
    return MM_NUMBERS_AS(MM_NUMBER_GIVEN, int, (int)result(sys(SYS_kill, real_number(pid), number)));
}

EXPORT int killpg(pid_t group, int number)
{
    if (group >= 0)
        return kill(-group, number);
    errno = EINVAL;
    return -1;
}

EXPORT int tgkill(pid_t pid, pid_t tid, int number)
{
    return MM_NUMBERS_AS(MM_NUMBER_GIVEN, int, (int)result(sys(SYS_tgkill, real_number(pid), mm_real_thread_number(tid), number)));
}

EXPORT int raise(int number) { return MM_NUMBERS_AS(MM_NUMBER_GIVEN, int, REAL(raise)(number)); }

EXPORT int sigqueue(pid_t pid, int number, const union sigval value)
{
    return MM_NUMBERS(int, REAL(sigqueue)(real_number(pid), number, value));
}

/* The number in a thread's descriptor, where that is not the kernel's; 0. */
static pid_t real_thread(pthread_t thread)
{
    if (LIKELY(!renamed_here()))
        return 0;
    uint32_t known = *(volatile uint32_t *)((char *)thread + ENGINE->image.tid_offset);
    for (uint32_t i = 0; known && i < ENGINE->renamed_count; i++)
        if (ENGINE->renamed[i].known == known && ENGINE->renamed[i].fs == (uint64_t)thread)
            return ENGINE->renamed[i].real != known ? (pid_t)ENGINE->renamed[i].real : 0;
    return 0;
}

static int kill_thread(pthread_t thread, int number)
{
    pid_t real = real_thread(thread);
    long r = real ? sys(SYS_tgkill, sys_getpid(), real, number) : -ESRCH;
    return r == -ESRCH ? REAL(pthread_kill)(thread, number) : (int)-r;
}

EXPORT int pthread_kill(pthread_t thread, int number)
{
    return MM_NUMBERS_AS(MM_NUMBER_GIVEN, int, kill_thread(thread, number));
}

static int cancel_thread(pthread_t thread, pid_t real)
{
    int r = REAL(pthread_cancel)(thread);
    if (mm_memory_head)
        mm_handler_install();          /* the library has just put its own there */
    if (!real)
        return r;
    sys(SYS_tgkill, sys_getpid(), real, MM_MEMORY_SIGNAL);
    return 0;                              /* the library has found no thread of the number that it has */
}

/* Whoever cancels itself may not return, and needs no number. */
EXPORT int pthread_cancel(pthread_t thread)
{
    if (pthread_equal(thread, pthread_self()))
        return cancel_thread(thread, 0);
    return MM_NUMBERS(int, cancel_thread(thread, real_thread(thread)));
}

/* A descriptor to show to the libc, with the number that the kernel knows: the thread's own, or where it came back, a copy.
 * The number in the true one stays: it is the owner's in every lock that the thread holds.
 * The copy takes its room in the caller's frame only where there is one: a thread's stack may have 16 KiB. */
#define DESCRIPTOR 8192
static pthread_t copied(pthread_t thread, pid_t real, char *copy)
{
    static const uint32_t *size;           /* glibc's word to debuggers */
    if (!size)
        size = REAL(dlsym)(RTLD_DEFAULT, "_thread_db_sizeof_pthread");
    if (!size || *size > DESCRIPTOR)
        return thread;
    memcpy(copy, (const void *)thread, *size);
    memcpy(copy + ENGINE->image.tid_offset, &real, sizeof real);
    return (pthread_t)copy;
}
#define SHOWN(thread) ({ \
    pid_t real = real_thread(thread); \
    LIKELY(!real) ? (thread) : copied(thread, real, __builtin_alloca_with_align(DESCRIPTOR, 512)); })
#define BY_SHOWN(name, ...) MM_NUMBERS(int, ({ pthread_t shown_ = SHOWN(thread); REAL(name)(shown_, __VA_ARGS__); }))

EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
    return BY_SHOWN(pthread_getattr_np, attributes);
}

EXPORT int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *set)
{
    return BY_SHOWN(pthread_getaffinity_np, size, set);
}

EXPORT int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    return BY_SHOWN(pthread_setaffinity_np, size, set);
}

EXPORT int pthread_getschedparam(pthread_t thread, int *policy, struct sched_param *parameters)
{
    return BY_SHOWN(pthread_getschedparam, policy, parameters);
}

EXPORT int pthread_setschedparam(pthread_t thread, int policy, const struct sched_param *parameters)
{
    return BY_SHOWN(pthread_setschedparam, policy, parameters);
}

EXPORT int pthread_setschedprio(pthread_t thread, int priority)
{
    return BY_SHOWN(pthread_setschedprio, priority);
}

EXPORT int pthread_getcpuclockid(pthread_t thread, clockid_t *clock)
{
    return BY_SHOWN(pthread_getcpuclockid, clock);
}

EXPORT int pthread_setname_np(pthread_t thread, const char *name)
{
    return BY_SHOWN(pthread_setname_np, name);
}

EXPORT int pthread_getname_np(pthread_t thread, char *name, size_t room)
{
    return BY_SHOWN(pthread_getname_np, name, room);
}

EXPORT int pthread_sigqueue(pthread_t thread, int number, const union sigval value)
{
    return BY_SHOWN(pthread_sigqueue, number, value);
}

/* -- groups and sessions: numbers of processes, too ---------------------------------------------------------------- */

static pid_t group_of(pid_t pid) { return mm_number_out((pid_t)result(sys(SYS_getpgid, real_number(pid)))); }

EXPORT pid_t getpgid(pid_t pid) { return MM_NUMBERS(pid_t, group_of(pid)); }
EXPORT pid_t getpgrp(void) { return MM_NUMBERS(pid_t, group_of(0)); }

EXPORT pid_t getsid(pid_t pid) { return MM_NUMBERS(pid_t, mm_number_out((pid_t)result(sys(SYS_getsid, real_number(pid))))); }
EXPORT pid_t setsid(void) { return MM_NUMBERS(pid_t, mm_number_out((pid_t)result(sys(SYS_setsid)))); }

EXPORT int setpgid(pid_t pid, pid_t group)
{
    return MM_NUMBERS(int, (int)result(sys(SYS_setpgid, real_number(pid), real_number(group))));
}

EXPORT pid_t tcgetpgrp(int fd) { return MM_NUMBERS(pid_t, mm_number_out(REAL(tcgetpgrp)(fd))); }
EXPORT int tcsetpgrp(int fd, pid_t group) { return MM_NUMBERS(int, REAL(tcsetpgrp)(fd, real_number(group))); }

/* -- whom a descriptor signals ----------------------------------------------------------------------------------------- */

/* Negative: of a group. */
static pid_t owner_out(pid_t real)
{
    for (uint32_t i = 0; renamed_here() && i < ENGINE->renamed_count; i++)
        if (ENGINE->renamed[i].real == (uint32_t)real)
            return (pid_t)ENGINE->renamed[i].known;
    return real < -1 ? -mm_number_out(-real) : mm_number_out(real);
}

static int owner(int fd, int command, struct f_owner_ex *known)
{
    int gives = command == F_SETOWN_EX;
    if (mm_usable(known, sizeof *known, !gives) < sizeof *known)
        return REAL(fcntl)(fd, command, known);
    struct f_owner_ex real = *known;
    real.pid = real.type == F_OWNER_TID ? mm_real_thread_number(real.pid) : real_number(real.pid);
    int r = REAL(fcntl)(fd, command, &real);
    if (r == 0 && !gives)
        *known = (struct f_owner_ex){ real.type, owner_out(real.pid) };
    return r;
}

int mm_control(int fd, int command, void *argument)
{
    if (UNLIKELY(mm_memory_head && (command == F_SETOWN || command == F_SETOWN_EX || command == F_SETSIG
                                    || (command == F_SETFL && (long)argument & O_ASYNC))))
        mm_memory_head->tree.signals = 1;
    switch (command) {
    case F_SETOWN: return MM_NUMBERS(int, REAL(fcntl)(fd, command, real_number((pid_t)(long)argument)));
    case F_GETOWN: return MM_NUMBERS(int, owner_out(REAL(fcntl)(fd, command)));
    case F_SETOWN_EX: case F_GETOWN_EX: return MM_NUMBERS(int, owner(fd, command, argument));
    default: return REAL(fcntl)(fd, command, argument);
    }
}

static int with_number(int fd, unsigned long request, pid_t *known, int gives)
{
    if (mm_usable(known, sizeof *known, !gives) < sizeof *known)
        return REAL(ioctl)(fd, request, known);
    pid_t real = real_number(*known);
    int r = REAL(ioctl)(fd, request, &real);
    if (r == 0 && !gives)
        *known = owner_out(real);
    return r;
}

int mm_control_device(int fd, unsigned long request, void *argument)
{
    if (UNLIKELY(mm_memory_head && (request == FIOASYNC || request == FIOSETOWN || request == SIOCSPGRP)))
        mm_memory_head->tree.signals = 1;
    switch (request) {
    case FIOSETOWN: case SIOCSPGRP: case TIOCSPGRP: return MM_NUMBERS(int, with_number(fd, request, argument, 1));
    case FIOGETOWN: case SIOCGPGRP: case TIOCGPGRP: case TIOCGSID: return MM_NUMBERS(int, with_number(fd, request, argument, 0));
    default: return REAL(ioctl)(fd, request, argument);
    }
}

/* -- children -------------------------------------------------------------------------------------------------------- */

/* From before the count of calls lets an image be made. */
#define FORKED(call) ({ \
    uint32_t outer_ = mm_numbers; \
    mm_fork_numbers = mm_memory_head != NULL; \
    pid_t r_ = (call); \
    r_ = mm_number_out(r_); \
    mm_fork_numbers = 0; \
    mm_numbers = r_ ? outer_ : 0; \
    r_; })

EXPORT pid_t fork(void) { return FORKED(REAL(fork)()); }

EXPORT pid_t forkpty(int *terminal, char *name, const struct termios *settings, const struct winsize *size)
{
    pid_t child = FORKED(REAL(forkpty)(terminal, name, settings, size));
    if (child == 0)
        mm_standard_replaced();
    return child;
}

/* Whoever takes orphans gets the writer of an image, too, whose process has ended: it is no child of the program's.  Before a wait
 * for any child of some; -1: the wait says so. */
static int pass_writers(idtype_t type, id_t id, int options)
{
    int takes = 0, before = errno;
    if (LIKELY(!mm_memory_head) || !(options & WEXITED) || sys(SYS_prctl, PR_GET_CHILD_SUBREAPER, &takes) < 0 || !takes)
        return 0;
    for (;;) {
        siginfo_t info = { .si_pid = 0 };
        int r = REAL(waitid)(type, id, &info, options | WNOWAIT);
        if (r < 0 && errno == EINTR)
            return -1;
        if (r < 0 || !info.si_pid || !mm_proc_writes_image((uint32_t)info.si_pid))
            break;
        sys(SYS_wait4, info.si_pid, 0, WNOHANG | __WALL, 0);
    }
    errno = before;
    return 0;
}

static pid_t waited_as_known(pid_t known, int *status, int options, struct rusage *usage)
{
    pid_t pid = real_number(known);
    if (pid <= 0 && pass_writers(pid == -1 ? P_ALL : P_PGID, pid == -1 ? 0 : (id_t)-pid, options | WEXITED) < 0)
        return -1;
    return mm_number_out(REAL(wait4)(pid, status, options, usage));
}

EXPORT pid_t wait(int *status) { return MM_NUMBERS(pid_t, waited_as_known(-1, status, 0, NULL)); }
EXPORT pid_t wait3(int *status, int options, struct rusage *usage)
{
    return MM_NUMBERS(pid_t, waited_as_known(-1, status, options, usage));
}
EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    return MM_NUMBERS(pid_t, waited_as_known(pid, status, options, NULL));
}
EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    return MM_NUMBERS(pid_t, waited_as_known(pid, status, options, usage));
}

static int waited(idtype_t type, id_t id, siginfo_t *info, int options)
{
    id_t real = type == P_PID || type == P_PGID ? (id_t)real_number((pid_t)id) : id;
    if ((type == P_ALL || type == P_PGID) && pass_writers(type, real, options) < 0)
        return -1;
    int r = REAL(waitid)(type, real, info, options);
    if (r == 0 && info && mm_have_come_back())
        info->si_pid = mm_number_out(info->si_pid);
    return r;
}

EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    return MM_NUMBERS(int, waited(type, id, info, options));
}

/* -- others that name a process --------------------------------------------------------------------------------------- */

EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long a, const struct iovec *from, unsigned long b,
                                unsigned long flags)
{
    return MM_NUMBERS(ssize_t, result(sys(SYS_process_vm_readv, real_number(pid), to, a, from, b, flags)));
}

EXPORT ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long a, const struct iovec *to, unsigned long b,
                                 unsigned long flags)
{
    return MM_NUMBERS(ssize_t, result(sys(SYS_process_vm_writev, real_number(pid), from, a, to, b, flags)));
}

EXPORT int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    return MM_NUMBERS(int, REAL(sched_getaffinity)(mm_real_thread_number(pid), size, set));
}

EXPORT int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    return MM_NUMBERS(int, REAL(sched_setaffinity)(mm_real_thread_number(pid), size, set));
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_pid(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"

const struct sigevent *mm_event_in(const struct sigevent *event, struct sigevent *real)
{
    if (LIKELY(!renamed_here()) || !event || event->sigev_notify != SIGEV_THREAD_ID)
        return event;
    *real = *event;
    real->_sigev_un._tid = mm_real_thread_number(real->_sigev_un._tid);
    return real;
}
