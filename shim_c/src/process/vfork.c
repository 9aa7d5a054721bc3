/* vfork.c - a child that runs in its parent's memory until it executes a program or ends; the parent waits for that.
 *
 * What the program stores meanwhile is the parent's, as it should be.  What this library keeps there of a process - its slot, its
 * descriptors, its signal handlers - the kernel keeps twice: so the parent sets aside a copy before the child begins, which takes
 * the place over as a forked child does, and puts it back when the kernel lets it go on.  That needs a process with one thread;
 * any other one forks.
 */
#include "process/process.h"

#include <link.h>

#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__

/* Behind mm_fds lie the other large tables: of those a child changes none but mm_fds and the readers that the parent would miss.
 * This is not in the copy. */
static LARGE struct {
    char *data;                            /* this library's variables, up to mm_fds */
    ptrdiff_t locals;                      /* a thread's, from its thread pointer on */
    size_t locals_bytes;
    char *copy;
    size_t room;
    int top_fd, folder;                    /* of the parent */
    uint64_t mask;
    struct mm_process *parent;
    int busy;
} v;

static char *thread_pointer(void)
{
    char *p;
    __asm__("mov %%fs:0, %0" : "=r"(p));
    return p;
}

static int found(struct dl_phdr_info *info, size_t size, void *unused)
{
    char *data = NULL, *constant_end = NULL;
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        char *at = (char *)info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_GNU_RELRO)
            constant_end = at + p->p_memsz;
        if (p->p_type == PT_LOAD && at <= (char *)mm_fds && (char *)mm_fds < at + p->p_memsz)
            data = at;
        if (p->p_type == PT_TLS) {
            v.locals = (char *)info->dlpi_tls_data - thread_pointer();
            v.locals_bytes = p->p_memsz;
        }
    }
    if (data)
        v.data = data > constant_end ? data : constant_end;
    return data != NULL;
}

static int may(void)
{
    uint64_t shadow_stack = 0;             /* the way back would not be on it */
    __asm__("rdsspq %0" : "+r"(shadow_stack));
    return *mm_single_threaded && !v.busy && !mm_depth && !mm_holding && !mm_cloned && !mm_memory_head
        && mm_watch_fd < 0 && !shadow_stack && (mm_active ? (mm_area->head->flags & MM_SUPERVISED) != 0 : mm_ready == 1);
}

static void set_aside(int back)
{
    struct { void *at; size_t bytes; } part[] = { { v.data, (char *)mm_fds - v.data }, { thread_pointer() + v.locals, v.locals_bytes },
                                                  { mm_fds, (v.top_fd + 1) * sizeof *mm_fds }, { NULL, 0 } };
    part[3].at = mm_readers_table(&part[3].bytes);
    char *copy = v.copy;
    for (int i = 0; i < 4; copy += part[i++].bytes)
        back ? memcpy(part[i].at, copy, part[i].bytes) : memcpy(copy, part[i].at, part[i].bytes);
}

/* 0: it cannot be. */
static int has_room(void)
{
    if (!v.data && !dl_iterate_phdr(found, NULL))
        return 0;
    size_t bytes;
    mm_readers_table(&bytes);
    bytes += (char *)mm_fds - v.data + v.locals_bytes + (mm_top_fd + 1) * sizeof *mm_fds;
    if (bytes <= v.room)
        return 1;
    if (v.copy)
        sys(SYS_munmap, v.copy, v.room);
    bytes = (bytes + 65535) & ~65535ul;
    long r = sys(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    v.copy = r < 0 && r > -4096 ? NULL : (char *)r;
    v.room = v.copy ? bytes : 0;
    return v.copy != NULL;
}

/* 1: the system call may follow; 0: fork. */
int mm_vfork_begin(void)
{
    if (!may() || !has_room())
        return 0;
    v.mask = sys_mask_all();
    mm_fork_begin();
    v.parent = mm_self, v.top_fd = mm_top_fd, v.folder = mm_area ? mm_area->folder : 0;
    v.busy = 1;
    set_aside(0);
    return 1;
}

/* Behind the system call, first in the child, then in the parent. */
pid_t mm_vforked(long r)
{
    uint64_t mask = v.mask;
    if (r == 0) {
        struct mm_process *parent = mm_forking ? v.parent : NULL;
        mm_in_child();
        mm_in_vfork = 1;
        if (parent)                        /* the parent's call has ended, whatever becomes of us: no checkpoint waits for it */
            __atomic_store_n(&parent->calls, 0, __ATOMIC_RELEASE);
        MM_STOP("vfork.child");
    } else {
        int top = mm_top_fd, left = errno; /* also the child's */
        set_aside(1);
        if (mm_area)
            mm_area->folder = v.folder;
        for (int fd = v.top_fd + 1; fd <= top; fd++)
            mm_fds[fd] = (struct mm_descriptor){ 0 };
        mm_environment_left();
        v.busy = 0;
        errno = r < 0 ? (int)-r : 0;
        if (mm_forking && !__atomic_load_n(&v.parent->calls, __ATOMIC_ACQUIRE))
            mm_depth = 0;
        mm_fork_in_parent();
        errno = r < 0 ? (int)-r : left;
    }
    sys_mask_back(mask);
    return r < 0 ? -1 : (pid_t)r;
}

#else
int mm_vfork_begin(void) { return 0; }
pid_t mm_vforked(long r) { return (pid_t)r; }
#endif
