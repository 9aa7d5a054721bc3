/* context.c - what every part of the library knows of the process that it is in: its run, its slot, its descriptors. */
#include "area/area.h"

struct mm_area *mm_area;
int mm_active;
struct mm_process *mm_self;
uint32_t mm_self_process;
int mm_buffer_fd = -1;
int mm_watch_fd = -1, mm_birth_fd = -1, mm_report_fd = -1;
int mm_uffd = -1;
int mm_keys;
int mm_kept_from_children, mm_folders_apart, mm_places_apart, mm_folders_told;
static const char unknown;
const char *mm_single_threaded = &unknown;
int mm_ready;                          /* 1: settled; 2: preloaded by hand, the run begins at the first need */
uint32_t mm_streams_lock, mm_noted_lock;
__thread uint32_t mm_known_tid __attribute__((tls_model("initial-exec")));

__attribute__((weak)) struct mm_life mm_life;      /* init.c has the one that counts */
void mm_begin(void) { mm_life.begin(); }
int mm_begin_late(void) { return mm_life.begin_late(); }
void mm_in_child(void) { mm_life.in_child(); }
void mm_last_out(void) { mm_life.last_out(); }
void mm_run_over(void) { mm_life.over(); }

void (*mm_on_tracked)(int fd);

LARGE struct mm_descriptor mm_fds[MM_FDS];     /* the first of the large tables (process/vfork.c) */
int mm_top_fd = -1;

/* A process in our memory with descriptors of its own (clone with CLONE_VM): what it opens and closes is not ours. */
int mm_memory_shared;
int mm_cloned, mm_in_vfork;
int mm_stranger(void) { return UNLIKELY(mm_memory_shared) && (uint32_t)sys_getpid() != mm_self->pid; }

/* Process and thread numbers of another PID namespace mean other processes in the run area. */
int mm_same_namespace(struct mm_area *area)
{
    struct stat st;
    return !area->head->pid_namespace || sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) < 0
        || st.st_ino == area->head->pid_namespace;
}

__thread uint32_t mm_numbers __attribute__((tls_model("initial-exec")));
__thread uint32_t mm_fork_numbers __attribute__((tls_model("initial-exec")));
struct mm_header *mm_memory_head;

/* Does `metamori run` serve this process's calls?  Then no runtime is loaded into it: there would be no way to bring one back. */
int mm_memory_run(void)
{
    return mm_memory_head && mm_memory_head->supervisor
        && mm_start_time(mm_memory_head->supervisor) == mm_memory_head->supervisor_start;
}
