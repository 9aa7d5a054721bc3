/* runtime.c - the embedded Python: a link namespace of its own, a thread of its own, one request at a time.
 *
 * The thread has a descriptor table of its own: what it opens takes no number from the program, and what it closes
 * drops none of the program's POSIX locks (closing any descriptor of a file drops the table's locks on it).  Its table
 * begins empty, so no pipe of the program is kept open.
 * dlmopen gives the runtime a libc of its own; a thread made by *that* libc's pthread_create has proper thread-local
 * state there, all signals blocked, a large stack.  The program's threads hand it one request and wait on a futex.
 * Preloaded objects are not in that namespace: what the runtime reads and writes never comes back here.
 * After a fork the child starts its own at the first need (docs/adr/0001).  A copy of a runtime amid its work would wait for
 * ever for what its thread held: a fork waits until the request is answered.
 */
#include "process/process.h"
#include "process/runtime.h"
#include "base/loader.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <ucontext.h>

static uint32_t lock, posted, answered;
static int (*entry)(int, long, void *, const char *);
static struct { int what, result; long argument; void *data; } request;
static int started;                    /* pid-wise: 0 after a fork */
static void *handle;
static void *(*look)(void *, const char *);  /* dlsym */

/* Where a sandbox forbids it the thread shares the program's table, and closes before it answers what it opened. */
static void own_table(void)
{
    if (sys(SYS_unshare, CLONE_FILES) < 0)
        return;
    sys(SYS_close_range, 0, ~0u, 0);
    for (int fd = 0; fd < 3; fd++)     /* never a file of the store where somebody might write a message */
        sys_openat(AT_FDCWD, "/dev/null", O_RDWR, 0);
}

/* In the runtime's thread: the same user and groups as its process.  While root is still there, groups come first. */
#define CREDENTIALS (-1)
static LARGE struct { uid_t uid[3]; gid_t gid[3]; int count; gid_t groups[1024]; } credentials;

static void take_credentials(void)
{
    for (int i = 0; i < 2; i++) {      /* rights that come back come back with the user */
        sys(SYS_setgroups, credentials.count, credentials.groups);
        sys(SYS_setresgid, credentials.gid[0], credentials.gid[1], credentials.gid[2]);
        sys(SYS_setresuid, credentials.uid[0], credentials.uid[1], credentials.uid[2]);
    }
}

static void *serve(void *unused)
{
    (void)unused;
    own_table();
    uint32_t seen = __atomic_load_n(&answered, __ATOMIC_ACQUIRE);
    for (;;) {
        while (__atomic_load_n(&posted, __ATOMIC_ACQUIRE) == seen)
            sys_futex_wait(&posted, seen, 1000000);
        seen++;
        if (request.what == CREDENTIALS)
            take_credentials();
        else
            request.result = entry(request.what, request.argument, request.data, mm_variable("METAMORI_STORE"));
        __atomic_store_n(&answered, seen, __ATOMIC_RELEASE);
        sys_futex_wake(&answered, 1);
    }
    return NULL;
}

/* A libpthread of its own (glibc before 2.34) takes the two signals by which threads are cancelled and change their user:
   they stay the program's. */
struct handlers { struct { uint64_t word[4]; } action[2]; };
static void keep_handlers(struct handlers *kept)
{
    for (int i = 0; i < 2; i++)
        sys(SYS_rt_sigaction, 32 + i, 0, &kept->action[i], 8);
}
static void handlers_back(const struct handlers *kept)
{
    for (int i = 0; i < 2; i++)
        sys(SYS_rt_sigaction, 32 + i, &kept->action[i], 0, 8);
}

static int load(void)
{
    Dl_info me;
    char path[PATH_MAX];
    if (!dladdr((void *)load, &me) || !realpath(me.dli_fname, path))
        return -ENOENT;
    char *name = strrchr(path, '/');
    strcpy(name, "/libmetamori_rt.so");
    /* A Python that has its library beside it (conda, uv, pyenv): where it was built says nothing of where it is.  The
       loader takes the one that is there under the name that the runtime asks for. */
    const char *library = mm_variable("METAMORI_LIBPYTHON");
    Lmid_t space = LM_ID_NEWLM;
    struct handlers kept;
    keep_handlers(&kept);
    void *first = library ? dlmopen(LM_ID_NEWLM, library, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (first)
        dlinfo(first, RTLD_DI_LMID, &space);
    handle = dlmopen(space, path, RTLD_NOW | RTLD_LOCAL);
    handlers_back(&kept);
    if (!handle) {
        mm_say("the runtime cannot start: %s", dlerror());
        return -ENOSYS;
    }
    *name = 0;
    look = (void *(*)(void *, const char *))mm_behind_us("dlsym");
    void (*prepare)(const char *, const char *) = (void (*)(const char *, const char *))look(handle, "metamori_rt_prepare");
    entry = (int (*)(int, long, void *, const char *))look(handle, "metamori_rt");
    if (!prepare || !entry)
        return -ENOSYS;
    prepare(path, mm_variable("METAMORI_PYTHON"));
    return 0;
}

/* Loading a library takes more stack than the thread that needs it first may have. */
#define LOADING (1 << 18)
static ucontext_t loading, waiting;
static int loaded;

static void load_apart(void) { loaded = load(); }

static int load_on_own_stack(void)
{
    long stack = sys(SYS_mmap, 0, LOADING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack < 0 && stack > -4096)
        return (int)stack;
    getcontext(&loading);
    loading.uc_stack.ss_sp = (void *)stack;
    loading.uc_stack.ss_size = LOADING;
    loading.uc_link = &waiting;
    makecontext(&loading, load_apart, 0);
    swapcontext(&waiting, &loading);
    sys(SYS_munmap, stack, LOADING);
    return loaded;
}

static int start_runtime(void)
{
    int e = handle ? 0 : load_on_own_stack();
    if (e < 0)
        return e;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))look(handle, "pthread_create");
    pthread_t thread;
    posted = answered = 0;
    uint64_t mask = sys_mask_all();
    e = create(&thread, NULL, serve, NULL);
    sys_mask_back(mask);
    if (e)
        return -e;
    started = 1;
    return 0;
}

void mm_runtime_credentials(void)
{
    int saved = errno;
    if (started) {
        sys(SYS_getresuid, &credentials.uid[0], &credentials.uid[1], &credentials.uid[2]);
        sys(SYS_getresgid, &credentials.gid[0], &credentials.gid[1], &credentials.gid[2]);
        long n = sys(SYS_getgroups, 1024, credentials.groups);
        credentials.count = n < 0 ? 0 : (int)n;
        mm_runtime_call(CREDENTIALS, 0, NULL);
    }
    errno = saved;
}

static int call(int what, long argument, void *data)
{
    MM_ASSERT(mm_locked_by_me(&lock));
    int r = started ? 0 : start_runtime();
    if (r == 0) {
        request.what = what;
        request.argument = argument;
        request.data = data;
        uint32_t ticket = __atomic_add_fetch(&posted, 1, __ATOMIC_ACQ_REL);
        sys_futex_wake(&posted, 1);
        for (uint32_t seen; (seen = __atomic_load_n(&answered, __ATOMIC_ACQUIRE)) != ticket;)
            sys_futex_wait(&answered, seen, 1000000);
        r = request.result;
    }
    return r;
}

/* No request but this thread's own, until it lets go.  The caller sees to it that no handler comes in between. */
int mm_runtime_hold(void)
{
    uint32_t holder = __atomic_load_n(&lock, __ATOMIC_RELAXED) & MM_OWNER;
    if (holder && holder == mm_tid)
        return 0;
    MM_ASSERT(!mm_depth || !mm_active);        /* a freeze would wait for the call */
    mm_lock(&lock, MM_LOCK_RUNTIME);
    return 1;
}
void mm_runtime_let_go(int held)
{
    if (held)
        mm_unlock(&lock);
}

/* With --memory: a call for `metamori run`.  A handler of the program that has one, too, waits for the end of this. */
int mm_controller_call(int what, long argument, const char *message)
{
    mm_holding++;
    int r = mm_request(mm_area, what, argument, message);
    mm_holding--;
    mm_deliver_if_free();
    return r;
}

int mm_runtime_call(int what, long argument, void *data)
{
    if (UNLIKELY(mm_area && mm_area->head->flags & MM_GONE))
        return -ENOENT;                /* what is at the store's path now, if anything, is not this run's */
    if (UNLIKELY(mm_in_vfork))
        return -EBUSY;                 /* the parent's runtime lies in the same memory */
    if (UNLIKELY(mm_memory_run()) && !data)
        return mm_controller_call(what, argument, NULL);
    uint64_t mask = sys_mask_all();
    int held = mm_runtime_hold();
    mm_lift_limit(0);                  /* what it writes is the store's */
    MM_STOP("runtime.call");
    int r = call(what, argument, data);
    mm_lift_limit(1);
    mm_runtime_let_go(held);
    sys_mask_back(mask);
    return r;
}

/* Is the file on another disk, and has the store's some room?  Checkpoints that go would make none there. */
static int is_full_elsewhere(int fd)
{
    struct stat st;
    struct statfs disk;
    return fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && st.st_dev != mm_store_dev()
        && mm_area->folder > 0 && sys(SYS_fstatfs, mm_area->folder, &disk) == 0
        && (uint64_t)disk.f_bavail * (uint64_t)disk.f_bsize >= 1 << 20;        /* ext4 refuses when some is left */
}

/* After a call that failed, on the file fd, or on none: is it to be made again, since the disk was full and a prune may have freed
 * some of it?  errno stays.  Once more too where there was nothing to prune: somebody else's prune may have come between.
 * *asked: that was so; 0 at first. */
int mm_made_room(int fd, int *asked)
{
    int saved = errno, again = 0;
    if ((saved == ENOSPC || saved == EDQUOT) && (mm_area->head->max_bytes || mm_area->head->keep_last) && !is_full_elsewhere(fd)) {
        MM_STOP("room.wanted");
        int freed = mm_runtime_call(MM_CALL_PRUNE, *asked, NULL) > 0;
        again = freed || !*asked;
        *asked = !freed;
    }
    errno = saved;
    return again;
}

void mm_runtime_after_fork(void)
{
    lock = 0;
    started = 0;
    mm_in_vfork = 0;
}
