/* init.c - how a process joins the run, and how it leaves. */
#include "start/start.h"
#include "start/proxy.h"
#include "process/runtime.h"
#include "memory/image_engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/auxv.h>

static uint32_t begin_lock;

/* Ranks of a job inherit the environment of the first one's node: a run area on a shared disk means nothing there. */
static int same_machine(struct mm_area *area)
{
    uint64_t boot = mm_boot();
    return !boot || !area->head->boot || boot == area->head->boot;
}

/* The process's slot: what it has already, or a new one; 0: all are in use. */
static uint32_t take_slot(struct mm_area *area, uint32_t process, uint32_t pid, uint64_t start)
{
    if (process && mm_proc(area, process)->start_time != start) {
        mm_process_leave(area, process);  /* the pid has come round */
        process = 0;
    }
    if (!process)
        process = mm_process_join(area, pid, start, 0);
    if (!process) {
        mm_release_dead(area);
        process = mm_process_join(area, pid, start, 0);
    }
    return process;
}

/* 0 or -errno */
static int open_buffer(struct mm_area *area, const char *store)
{
    SCRATCH(path);                     /* no printf: a short program would be the first to need its pages */
    mm_digits(stpcpy(stpcpy(path, store), "/buffer/"), area->head->run);
    long fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0)
        return (int)fd;
    mm_buffer_fd = mm_high_fd((int)fd);
    if (area->folder <= 0)             /* the program has no standard input: its number was not kept */
        area->folder = (int)sys_openat(AT_FDCWD, strcat(strcpy(path, store), "/run"), O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    area->folder = area->folder >= 0 ? mm_high_fd(area->folder) : 0;
    return 0;
}

static int join(const char *store)
{
    struct mm_area *area = mm_attach(store, MM_KEEP_FOLDER);
    if (!area)
        return -errno;
    uint32_t pid = (uint32_t)sys_getpid();
    uint64_t start = mm_start_time(pid);
    uint32_t process = mm_process_of(area, pid);
    /* what this process was a moment ago said that it would come back: its PID namespace is the one that it had, and who looks
       whether the run can be closed finds it here */
    int back = process && start && mm_proc(area, process)->executing && mm_proc(area, process)->start_time == start;
    int closed = (area->head->flags & MM_CLOSED) != 0 && !(back && !mm_proc(area, process)->leaving);
    if (closed || mm_is_shown(area)) {
        mm_detach(area);
        return -ESRCH;
    }
    int where = !same_machine(area) ? -EREMOTE : !back && !mm_same_namespace(area) ? -EXDEV : 0;
    if (where < 0) {
        mm_detach(area);
        return where;
    }
    process = take_slot(area, process, pid, start);
    if (process && !back                   /* between the look and the slot */
        && __atomic_load_n(&area->head->flags, __ATOMIC_SEQ_CST) & MM_CLOSED) {
        mm_process_leave(area, process);
        mm_detach(area);
        return -ESRCH;
    }
    int e = process ? open_buffer(area, store) : -EAGAIN;
    if (e < 0) {
        mm_detach(area);
        return e;
    }
    mm_self_process = process;
    mm_self = mm_proc(area, process);
    if (mm_self->calls)                /* an exec ended threads in the middle of calls */
        mm_release_locks(area, (uint32_t)sys_gettid());
    mm_room_of_dead(area, mm_self);
    mm_self->calls = 0;
    mm_self->outside = mm_self->leaving = mm_self->executing = 0;
    mm_join_elsewhere(area);
    mm_area = area;
    __atomic_store_n(&mm_active, 1, __ATOMIC_RELEASE);
    mm_adopt();
    enter();                           /* a call of ours: not amid a checkpoint */
    mm_release_some_dead(area, pid);
    leave();
    mm_hold_spares();                  /* after it: each descriptor of ours in /proc/self/fd costs the look at the others */
    mm_readers_after_exec();
    return 0;
}

/* Preloaded by hand: the first call that changes a file begins the run (or joins the one that another process began). */
static int begin_late(void)
{
    if (mm_depth)
        return 0;
    int saved = errno;
    mm_depth++;
    mm_lock(&begin_lock, MM_LOCK_BEGIN);
    if (!mm_active && mm_ready == 2) {
        const char *store = mm_variable("METAMORI_STORE");
        int e = join(store);
        for (int tries = 0; e < 0 && tries < 20; tries++) {    /* a verb that looks may take an area without processes for */
            e = mm_runtime_call(MM_CALL_BEGIN, 0, NULL);       /* that of a killed run, and complete it before we are in it */
            if (e < 0)
                break;
            e = join(store);
        }
        if (e < 0)
            mm_say("files are not tracked: the store %s cannot be used (%s)", store, strerror(-e));
        mm_ready = 1;
    }
    mm_unlock(&begin_lock);
    mm_depth--;
    mm_deliver_if_free();
    errno = saved;
    return mm_active;
}

/* After a fork, in the child. */
static void in_child(void)
{
    mm_tid = mm_known_tid = 0;
    mm_locks_forgotten();
    mm_runtime_after_fork();
    mm_scratch_after_fork();
    mm_map_generation++;               /* some of the parent's pages may not be in it (MADV_DONTFORK) */
    begin_lock = mm_streams_lock = mm_noted_lock = 0;
    mm_limit_after_fork();
    mm_actions_after_fork();
    mm_renumber_in_child();
    if (mm_active || mm_forking)
        mm_after_fork();
    mm_memory_in_child();
    mm_timers_in_child();
}

/* Without METAMORI_STORE the store is .metamori in the folder where the first process starts. */
static const char *store_by_hand(void)
{
    static LARGE char path[4096];
    const char *store = getenv("METAMORI_STORE");
    if (store && store[0] == '/')
        return store;
    long n = sys(SYS_getcwd, path, sizeof path - 16);
    if (n <= 0)
        return NULL;
    if ((size_t)n + strlen(store ? store : ".metamori") + 2 > sizeof path)
        return NULL;
    strcat(strcat(path, "/"), store ? store : ".metamori");
    setenv("METAMORI_STORE", path, 1);
    return path;
}

/* The C library knows the environment once its own constructor has run: to DT_PREINIT_ARRAY it has none.  It lies where the kernel
 * put it, behind the arguments. */
static char **first_environment(void)
{
    extern void *__libc_stack_end;
    long count = *(long *)__libc_stack_end;
    char **arguments = (char **)__libc_stack_end + 1;
    return count >= 0 && count < 1 << 24 && !arguments[count] ? arguments + count + 1 : NULL;
}

static void begin(void)
{
    if (mm_ready)
        return;
    int saved = errno, early = !environ;
    if (early)
        environ = first_environment();
    mm_ready = 1;
    mm_resolve();
    mm_old_libc();
    if (getauxval(AT_SECURE)) {            /* rights that whoever chose the environment does not have */
        environ = early ? NULL : environ;
        errno = saved;
        return;
    }
    if (getenv("METAMORI_MEMORY"))
        mm_memory_region();
    const char *store = store_by_hand();
    mm_environment_init(mm_memory_keep);
    if (store && !mm_variable("METAMORI_DISABLE")) {
        int is_proxy = mm_proxy_begin(store);
        pthread_atfork(mm_fork_begin, mm_fork_in_parent, in_child);
        MM_STOP("init.joins");
        mm_holding++;
        int e = !is_proxy && UNLIKELY(mm_become_run()) ? -EREMOTE : join(store);
        mm_holding--;
        mm_deliver_if_free();
        if (UNLIKELY(is_proxy))
            mm_proxy_serve(e);
        if (e < 0 && !mm_variable("METAMORI_SUPERVISED"))
            mm_ready = 2;
        else if (e == -EXDEV)
            mm_say("%s is not tracked: it has process numbers of its own (a PID namespace)", program_invocation_name);
        else if (e == -EREMOTE)
            mm_say("%s is not tracked: the run of %s is on another machine", program_invocation_name, store);
        else if (e < 0 && e != -ENOENT && e != -ESRCH)     /* these two: the run is over */
            mm_say("%s is not tracked: the run of %s cannot be joined (%s)", program_invocation_name, store, strerror(-e));
        if (mm_area || mm_ready == 2)
            mm_streams_init();
        if (mm_area)
            mm_memory_joined();
    }
    if (getenv("METAMORI_MEMORY") && !mm_area)
        mm_memory_not_joined();
    if (early)                         /* as the program's own code has it there */
        environ = NULL;
    errno = saved;
}

/* glibc gives a constructor what it gives main.  METAMORI_BECOME: `metamori run` does not have this library in itself, so it starts
 * a program that we are not in by one that we are in. */
__attribute__((constructor)) static void constructed(int count, char **argv, char **envp)
{
    (void)count, (void)envp;
    begin();
    const char *file = getenv("METAMORI_BECOME");
    if (LIKELY(!file))
        return;
    unsetenv("METAMORI_BECOME");
    execve(file, argv, environ);
    mm_say("%s: %s", file, strerror(errno));
    sys(SYS_exit_group, errno == ENOENT ? 127 : 126);
}

/* A metamori verb that was started inside a run: it is no part of it.  begins: another run, or another program of this one.
 * Returns whether it was. */
EXPORT int metamori_step_out(int begins)
{
    int was = mm_active;
    if (was && begins)                 /* its slot says how long there may be programs that nobody tracks here */
        mm_leave_for_another();
    mm_holding++;
    if (mm_area && !begins)
        mm_process_leave(mm_area, mm_self_process);
    mm_active = 0;
    mm_forget_descriptors();
    mm_ready = 1;
    mm_holding--;
    mm_deliver_if_free();
    return was;
}

static int others_live(void)
{
    for (uint32_t i = 1; i < mm_area->head->process_high; i++)
        if (!__atomic_load_n(&mm_proc(mm_area, i)->leaving, __ATOMIC_SEQ_CST) && mm_process_alive(mm_area, i))
            return 1;
    return 0;
}

/* The run is over, everything is in place, and frozen for good: no call is under way. */
static void when_over(void)
{
    mm_lock_own(&begin_lock, MM_LOCK_BEGIN);
    if (mm_active)
        mm_leave();
    mm_unlock_own(&begin_lock);
}

/* The last process of a run without `metamori run` writes all bytes back. */
static void last_out(void)
{
    if (!mm_active || mm_depth || mm_in_vfork)
        return;
    /* said before the looks: of two that end at once each would wait for the other; so both may be the last, and the first
       that has the store's lock is.  So is `metamori run`, if it leaves the end to others at this moment */
    __atomic_store_n(&mm_self->leaving, 1, __ATOMIC_SEQ_CST);
    if (mm_run_is_watched(mm_area))
        return;
    if (others_live() || mm_unborn(mm_area) || others_live())  /* none is unborn any more: it has a slot by now */
        return;
    if (mm_runtime_call(MM_CALL_LAST_OUT, (long)mm_area->head->run, NULL) > 0)
        when_over();
}

struct mm_as_program mm_as_program = { open, close, fcntl, inotify_add_watch, mmap, mm_hold_term };
struct mm_life mm_life = { begin, begin_late, in_child, last_out, when_over };

/* What the program has printed comes before the last index, as `exit` is about to flush it; `_exit` is not. */
__attribute__((destructor)) static void at_exit(void)
{
    if (mm_active && !mm_depth && !mm_in_vfork && !mm_run_is_watched(mm_area))
        fflush(NULL);
    last_out();
}
