/* engine.h - the memory of an unmodified program, saved at an instant and brought back in a new process.
 *
 * Invariants
 *  1. The engine's own state lies in one region at a fixed address.  It is no part of an image, and neither are the preload
 *     library and the run area: a process that comes back has fresh ones of its own around the program's old memory.
 *  2. From the signal's arrival to its end nothing here calls the libc: it may be in the middle of anything, and while a program
 *     comes back it is not even there.  These files are compiled without stack protector and without builtins.
 *  3. An image is complete, or it counts from the image that `last` names; what a failed image took away from the kernel's
 *     record of changes makes the next one complete.
 *  4. A stop either has every thread of the process in `park` or lets all of them go: there is no half of it.
 */
#ifndef MM_IMAGE_ENGINE_H
#define MM_IMAGE_ENGINE_H

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include <sys/shm.h>

#include "area/area_internal.h"
#include "memory/comeback.h"
#include "memory/image.h"

/* above the 46 bits in which JavaScript engines and allocators choose addresses by chance, below programs and libraries */
#define MM_ENGINE_PLACE 0x600000000000ul
#define MM_AREA_PLACE 0x610000000000ul
#define MM_MEMORY_ASK 0x6d746d72u      /* value of the signal: somebody wants an image */
#define MM_MEMORY_STOP 0x6d746d73u     /* the leader wants every thread */

#define MM_PATIENCE_NS 3000000000ul     /* with threads that do not stop: a debugger may hold one */

#define THREADS 1024
#define THREAD_STACK 16384
#define LEADER_STACK (512u << 10)
#define AREAS 65536
#define SPANS (2u << 20)
#define PATHS (4u << 20)
#define MAPS (16u << 20)
#define STAGE (256ul << 20)            /* what changes up to this is copied aside; more is left to a forked process */
#define STAGE_FEW (4ul << 20)          /* in small pages: of many processes, most have little that changes */
#define STAGE_KEPT (32ul << 20)         /* of them stay in memory from one image to the next */
#define REGIONS 4096                    /* that the kernel names at once */
#define REGIONS_FEW 128                 /* of most mappings: it keeps room for so many */
#define KEEP 131072
#define COMEBACK (4u << 20)

#define MM_TILES 18                     /* of the parts of a processor's state: AMX, which programs must ask for */
#define MM_GUARD_INSTALL 102            /* of madvise, since Linux 6.13 */
#define MM_VARIABLES 5120               /* words: more than what of this library is written or holds addresses, its arrays aside */

/* Where things lie that cannot be mapped again, and the library's variables at the instant (move.c). */
struct mm_layout { uint64_t library, place[11], variable[MM_VARIABLES]; };

/* Thread numbers: the program's and the kernel's.  Threads that begin later may get either, but have descriptors of their own (fs). */
struct mm_renamed { uint32_t known, real; uint64_t fs; };

enum { MM_LOOKED_FOR_HOLES = 1, MM_SWAPPED_OUT = 2 };
struct mm_tables {
    uint64_t areas, saved, existing, path_bytes;
    struct mm_vma area[AREAS];
    uint32_t device[AREAS];                /* of each, as maps says it */
    uint8_t shares[AREAS];                 /* bits: what is known of one that is shared */
    char path[PATHS];
};

/* Mappings of shared memory that the last image has: at, where the hashes of their pages begin. */
#define HASHED 256
#define HASHES (8ul << 20)
struct mm_hashed { uint64_t start, end, inode, offset, at; };
struct mm_hashes {
    uint32_t known, count, is_full, unused;        /* of before, of now */
    uint64_t used;
    struct mm_hashed before[HASHED], now[HASHED];
    uint64_t hash[HASHES];
};

struct mm_engine {
    uint32_t pid;                      /* of the process that this state is about */
    uint32_t leader;                   /* thread that makes the image, 0: none */
    int again;                         /* no image now: a call was just beginning, or: */
    int entering;                      /* a thread was in a handler's first steps, or had a number in hand */
    int tiles;                         /* a thread has used those of the processor (AMX) */
    uint32_t stop;                     /* number of the present stop, even: none */
    uint32_t parked;
    uint32_t all_ready;                /* futex, of a restart: nothing can fail any more */
    uint32_t within;                   /* threads that use its stacks and its notes of them, of a restart also the leader */
    uint32_t known_pid;                /* 0: the program knows its real pid */
    uint32_t renamed_count;
    uint64_t last;                     /* index of the image that the kernel counts changes from; 0: none */
    uint64_t keep_used;
    uint64_t crc_ready;
    uint32_t crc_table[8][256];
    struct mm_renamed renamed[THREADS + 1];        /* a main thread that has ended, too */
    struct mm_memory_image image;
    struct mm_thread thread[THREADS];
    struct mm_timer timer[MM_TIMERS];
    struct mm_tables now, then;        /* the process as it is, and as an image says */
    struct mm_span saved[SPANS], existing[SPANS], other[SPANS];
    struct { uint64_t start, end, categories; } region[REGIONS];
    char maps[MAPS];
    char keep[KEEP], kept_text[KEEP];
    struct mm_layout layout;           /* into an image, or out of one */
    char comeback[COMEBACK];
    struct mm_memory_image below;
    uint32_t signalled[THREADS];
    uint32_t uncounted;                /* as on a kernel that keeps no record of changes */
    uint32_t main_gone;                /* it ended before the others */
    uint32_t asked;                    /* threads asked to park: slots 1 to asked, those with a tid stand there */
    int maps_read;                     /* 0, or -errno: what is mapped is known since all threads stand */
    uint32_t places_known;             /* layout.place is that of an image of this program's, true unless */
    uint32_t places_change;            /* calls that change it are under way */
    uint64_t frame_end;                /* of what the kernel put on the leader's stack, with the processor's state */
    uint32_t writer;                   /* the last one, where it is a child of this process; 0: none */
    struct mm_hashes hashes;
    char leader_stack[LEADER_STACK] __attribute__((aligned(64)));
    char thread_stack[THREADS][THREAD_STACK] __attribute__((aligned(64)));
    char writer_stack[65536] __attribute__((aligned(64)));
    char stage[STAGE] __attribute__((aligned(4096)));
};
#define ENGINE ((struct mm_engine *)MM_ENGINE_PLACE)

/* the parts of the library that belong to the program: its handlers, say */
extern char __start_mm_program[] __attribute__((weak, visibility("hidden")));
/* of the handler that stands before the program's: wrap_signal.c */
extern char __start_mm_entry[] __attribute__((visibility("hidden"))), __stop_mm_entry[] __attribute__((visibility("hidden")));
extern char __stop_mm_program[] __attribute__((weak, visibility("hidden")));

/* of the loader, since glibc 2.35 */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

/* of a thread in one of the calls of wrap_blocking.c */
#define MM_SYS_epoll_pwait2 441
struct mm_wait {
    uint32_t number;                   /* of the system call that it waits in, 0: none */
    uint32_t handled;                  /* a handler of the program's has run since */
    uint32_t came;                     /* so has ours */
    uint64_t since;                    /* when the time that it was given began (ns) */
    uint64_t again;                    /* where the call is made again, 0: it was never interrupted by us */
    struct timespec rest;
};
extern __thread struct mm_wait mm_wait __attribute__((tls_model("initial-exec")));

#define MM_SETTINGS 4                   /* of prctl (settings.c) */
/* What the kernel keeps for a thread and struct mm_thread has no place for: it comes back with the thread's own memory. */
struct mm_of_thread {
    uint64_t rseq;                     /* what it has registered by the system call, where the C library has nothing; 0: nothing */
    uint32_t rseq_length, rseq_signature;
    int io_priority;                   /* as the kernel has it, like the next; below 0: it does not say */
    int64_t setting[MM_SETTINGS], personality;
};
extern __thread struct mm_of_thread mm_of_thread __attribute__((tls_model("initial-exec")));

/* Around a call that gives or takes one. */
#define MM_NUMBERS(type, call) MM_NUMBERS_AS(1, type, call)
/* Of one system call that takes one and returns 0: a process that stops itself by it stands right behind it.  Others before it return
 * the numbers that it takes. */
#define MM_NUMBER_GIVEN 2
#define MM_NUMBERS_AS(how, type, call) ({ \
    uint32_t outer_ = mm_numbers; \
    mm_numbers = mm_memory_head ? (how) : 0; \
    type r_ = (call); \
    mm_numbers = outer_; \
    r_; })
extern struct mm_memory *mm_my_memory;   /* of this process, in the run area */

/* freestanding.c */
void own_copy(void *to, const void *from, uint64_t n);
void own_fill(void *to, int byte, uint64_t n);
uint64_t own_length(const char *text);
int own_equal(const char *a, const char *b);
int own_begins(const char *text, const char *prefix);
uint64_t own_number(const char **text, int base);
char *own_decimal(char *end, uint64_t number);         /* writes before end, returns the first digit */
uint32_t own_crc(uint32_t crc, const void *bytes, uint64_t n);
uint64_t own_now(void);
void own_say(const char *a, const char *b, const char *c);

/* maps.c */
int mm_maps_read(struct mm_tables *out, uint64_t *key);         /* key: of the text (mm_maps_key), or NULL */
int mm_has_no_name(const char *path);
const char *mm_map_refused(const struct mm_tables *t, const struct mm_vma *v);
struct mm_list { struct mm_span *span; uint64_t count; };
int mm_append_span(struct mm_list *to, uint64_t start, uint64_t end, const struct mm_vma *v);
long mm_fetched(const struct mm_vma *v, struct mm_span s, struct mm_list *written, struct mm_list *existing);
static inline int counts(const struct mm_vma *v)       /* is its content in the image? */
{
    return v->kind == AREA_PLAIN || v->kind == AREA_STACK;
}
/* Of MAP_SHARED | MAP_ANONYMOUS; the program may have named it (PR_SET_VMA_ANON_NAME, since Linux 6.2). */
static inline int is_anonymous(const char *path) { return own_begins(path, "/dev/zero") || own_begins(path, "[anon_shmem:"); }
/* Memory of several processes, and not a file of the run: each such object has a number of its own among its kind. */
static inline int shared_kind(const struct mm_tables *t, const struct mm_vma *v)
{
    const char *path = t->path + v->path;
    return !v->shared ? 0 : is_anonymous(path) || own_begins(path, "/memfd:") ? 1 : own_begins(path, "/dev/shm/") ? 2
         : own_begins(path, "/SYSV") ? MM_SYSV_SHM : mm_has_no_name(path) ? MM_NO_NAME : 0;
}
/* A private mapping that cannot be made again from its file: all of it is saved, and comes back as memory of the process alone. */
static inline int is_copied(const struct mm_vma *v, const char *path)
{
    return counts(v) && !v->shared && (own_begins(path, "/memfd:") || own_begins(path, "/dev/shm/") || mm_has_no_name(path));
}
static inline int shared_memory(const struct mm_tables *t, const struct mm_vma *v) { return shared_kind(t, v) != 0; }

/* changes.c */
int mm_changes(struct mm_tables *t, int complete, uint64_t *saved, uint64_t *existing);
int mm_changes_begin(struct mm_tables *t);
void mm_watch_new(uint64_t start, uint64_t length);
int mm_watch_ends(const void *range);

/* shared_memory.c */
int mm_note_swapped(struct mm_tables *t);
int mm_missed_some(const struct mm_tables *t, uint64_t areas);
int mm_claim_room(uint64_t bytes);
int mm_shares_memory(const struct mm_tables *t);
void mm_changes_shared_begin(int since_before, int tracking);
long mm_changes_shared(struct mm_tables *t, const struct mm_vma *v, uint64_t most, struct mm_list *written, struct mm_list *existing);
void mm_claim_again(const struct mm_tables *t);
long mm_clone_whole(long flags);

/* stop_threads.c */
int mm_stop_others(void);
void mm_release_others(void);
void mm_await_no_stop(void);
int mm_state_letter(const char *folder, uint32_t id);
int mm_ended(const char *folder, uint32_t id);
int mm_asker_ended(uint32_t pid);
void mm_note_thread(struct mm_thread *t);

/* handler.c */
void mm_handler_install(void);
void mm_handler_set(void *handler);
void mm_late_begin(void);
void mm_late_end(void);
extern __thread int mm_cancelled_at_once __attribute__((tls_model("initial-exec")));   /* its type is asynchronous */

/* timer_threads.c */
/* A timer of the program's that starts a thread each time.  due: its number above, below how often it has run out with no thread yet. */
struct mm_thread_timer {
    uint64_t due;
    uint64_t left;                     /* ns, when the thread that is told came to stand */
    int id;                            /* the kernel's */
    int used;
    timer_t known;                     /* the C library's */
    void (*function)(union sigval);
    union sigval value;
    pthread_attr_t attributes;
};
extern struct mm_starter {
    uint32_t word;                     /* futex: changes with each that runs out */
    uint32_t tid;                      /* of the thread that is told, as the program would know it; 0: there is none */
    uint64_t thread;                   /* the same */
    uint32_t high;                     /* places that were ever in use */
    uint32_t asked;                    /* while it stood, it took the signal of somebody who wants an image */
    uint64_t since, saved;             /* when it came to stand, and when timers were asked for an image */
    struct mm_thread_timer *timer;     /* MM_TIMERS of them */
} mm_starter;
void mm_timer_came(uint64_t value);
void mm_timers_stand(void);
int mm_timers_took_ask(void);
int mm_ran_out_since(const struct mm_timer *of);

/* waits.c */
void mm_wait_again(void *context);
long mm_rseq(long area, long length, long flags, long signature);

/* settings.c */
#define MM_REGISTER (1 << 2 | 1 << 4 | 1 << 6 | 1 << 8)        /* commands of membarrier: others fail without */
void mm_settings_note(void);
void mm_settings_back(void);
long mm_membarrier(long command, long flags, long processor);
void mm_barriers_back(void);

/* save.c */
void mm_save(void);
void mm_make_images(uint64_t begun);
void mm_engine_in_child(uint32_t known, uint32_t real);
int mm_answer(uint32_t expected, uint32_t state);

/* numbers.c */
uint32_t mm_program_tid(uint32_t real, uint64_t fs);
uint32_t mm_known_tid_of(uint32_t real);
int mm_have_come_back(void);
pid_t mm_number_out(pid_t real);
pid_t mm_number_in(pid_t known);
int mm_has_sender(int code);
void mm_sender_out(siginfo_t *info);
void mm_numbers_known(void *context);
void mm_numbers_real(void *context);
int mm_numbers_under_way(const void *context);

/* kernel_state.c */
int mm_process_state(struct mm_memory_image *image);
void mm_handlers(struct mm_memory_image *image);
void mm_process_state_back(const struct mm_memory_image *image);
int mm_starts_threads(void);
void mm_signal_back(const struct mm_memory_image *image, int number, uint32_t thread);
void mm_timers_back(const struct mm_memory_image *image, uint32_t (*real)(uint32_t known));
void mm_queued_back(void);

/* owners.c */
const char *mm_owners_note(void);
void mm_owners_back(void);

/* restore.c */
void mm_come_back(struct mm_member *member);

/* threads_back.c */
void mm_rename_thread(uint32_t known, uint32_t real, uint64_t fs);
uint32_t mm_real_tid(uint32_t known);
void mm_thread_state_back(const struct mm_thread *t);
void mm_note_parent(void);
uint32_t mm_threads_back(const struct mm_thread *main_thread);
void mm_threads_set(const struct mm_thread *main_thread, uint32_t others);

/* together.c */
struct mm_member *mm_this_member(void);
void mm_await_turn(void);
void mm_end_turn(void);
void mm_await_all(void);
void mm_await_ready(void);
void mm_await_opened(void);
void mm_let_children_stop(const struct mm_memory_image *image);
void mm_await_stopped(void);
void mm_all_lost(void);
void mm_cannot_come_back(const char *what, const char *more) __attribute__((noreturn));

/* move.c */
void mm_build_of_library(uint8_t id[MM_BUILD_ID]);
void mm_layout_of(struct mm_layout *out);
const void *mm_as_it_was(const struct mm_layout *of, const void *variable);
void mm_move_library(const struct mm_layout *was, void (*go_on)(void)) __attribute__((noreturn));
int mm_lies_elsewhere(const struct mm_layout *was);
void mm_move_rest(const struct mm_layout *was, int elsewhere);

/* fill.c */
int mm_image_open(const char *path);
void mm_take(int fd, void *to, uint64_t n, uint64_t *at);
uint64_t mm_in_order(struct mm_span *s, uint64_t count);
void mm_fill_from(const char *path);
int mm_has_pages(const struct mm_vma *v);

/* engine/private_fds.c, area/context.c */
int mm_next_own(int from);
extern struct mm_process *mm_self;

/* The wrappers, which lie above; init.c fills it in. */
struct mm_as_program {
    int (*open)(const char *path, int flags, ...);
    int (*close)(int fd);
    int (*fcntl)(int fd, int command, ...);
    int (*inotify_add_watch)(int watcher, const char *path, uint32_t events);
    void *(*mmap)(void *at, size_t length, int protection, int flags, int fd, off_t offset);
    void (*hold_term)(void);
};
extern struct mm_as_program mm_as_program;

/* memory_glue.c */
int mm_term_waits(const siginfo_t *info, void *context);

/* program_back.c: the rest of the library, once the program's memory is there again */
void mm_descriptors_back(const struct mm_came_descriptor *list, uint32_t count);
int mm_locks_back(const struct mm_came_lock *list, uint32_t count);
void mm_shared_file_back(const struct mm_vma *v, const char *path);
void mm_private_file_back(const char *path);

/* switch.c: assembly */
int mm_switch(uint64_t registers[8], void (*run)(void *), void *argument, void *stack);
void mm_jump(const uint64_t registers[8]) __attribute__((noreturn));
void mm_on_stack(void (*run)(void), void *stack) __attribute__((noreturn));
void mm_return_from_signal(void);
long mm_clone_process(long flags, void *stack, void (*run)(void));
long mm_clone3_thread(const uint64_t *how, uint64_t size, void (*run)(void *), void *argument);
long mm_clone_thread(long flags, void *stack, void (*run)(void *), void *clear_tid, void *fs, void *argument);

static inline void *stack_top(char *stack, uint64_t size)
{
    return (void *)(((uint64_t)stack + size - 64) & ~63ul);
}

#endif
