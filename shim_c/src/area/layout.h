/* layout.h - the run area: everything that the processes of a run share, in mapped files below <store>/run.
 *
 * Invariants
 *  1. Position independent: no pointer is stored, only slot numbers, page numbers and byte offsets.
 *  2. The area is true after a SIGKILL of any process at any instruction: data is in the buffer before the table entry
 *     that names it, a journal record is complete before the tail moves past it.
 *  3. Slot 0 of every kind means "none".  Page 0 is never used.  Buffer block 0 is never written: it reads as zeros.
 *  4. No mapped byte is touched before its file space was allocated: a full disk is an errno, not a SIGBUS.
 *
 * The part between the CDEF marks is also what Python sees (metamori/runtime/area/build_area.py): keep it plain C.
 */
#ifndef MM_AREA_H
#define MM_AREA_H

#include <stdint.h>
#include <stddef.h>

/* CDEF-BEGIN */
#define MM_BLOCK 4096
#define MM_NO_LIMIT 9223372036854775807
#define MM_BUCKETS 65536
#define MM_SEEN 32768
#define MM_SAID 256
enum { MM_WORDS = 8, MM_WORDS_BYTES = 1020, MM_STORE_MAX = 3800 };    /* bytes of its path, with the 0 at the end */
#define MM_NAME_LOCKS 64
#define MM_CHUNK 65536        /* bytes of a cache frame, and of the piece of buffer that it holds */

/* header.flags */
#define MM_ISOLATE 1
#define MM_SINGLE 2
#define MM_SUPERVISED 4
#define MM_POWER 8
#define MM_CLOSED 16
#define MM_INODES_STAY 32     /* files may be held that nobody has open: O_TRUNC gives none another inode (replace_inode.c) */
#define MM_OVER 16384         /* the run is over and stays frozen: threads that still run leave it as they come (guard.c) */
#define MM_GONE 8192          /* the store was removed while the run is alive: nothing more is tracked, nothing redirected */
#define MM_MOVES 2048         /* some PIF has MM_MOVED */
#define MM_ON_TERM 4096       /* a SIGTERM waits until a checkpoint is complete */
#define MM_JOB 65536          /* one of several runs on the same files: nothing is redirected, `metamori run` takes the checkpoints */
#define MM_STRICT 32768       /* the library is in no program: the kernel shows the calls of all */
#define MM_MEMORY 1024        /* checkpoints hold the memory of the run's processes too */

/* of a PIF's flags */
#define MM_VIRTUAL 1    /* size, not the kernel's size in place, is the file's size */
#define MM_KEPT 2       /* linked (or copied) into <store>/kept */
#define MM_NAMELESS 4   /* no name is left */
#define MM_MAPPED 8     /* its bytes may change unseen (shared writable mapping): each checkpoint looks for what changed */
#define MM_COPIED 16    /* the kept file is a copy: the store is on another file system */
#define MM_INDEXED 32   /* some checkpoint knows this file */
#define MM_USED 64      /* slot in use */
#define MM_HOME 128     /* mapped, or visible to untracked programs: bytes stay in place; a block's pre-image is saved before it is overwritten */
#define MM_ENGINE 256   /* an asynchronous engine may use it, or names that no run knows lead to it: MM_HOME as long as it is open */
#define MM_SETTLED 512  /* was settled in isolation */
#define MM_MOVED 1024   /* a restore has made it another inode than older indexes know */
#define MM_LEFT 2048    /* it was renamed out of the scope: older indexes have its bytes in buffers, nothing more is recorded */
#define MM_LINKED 4096  /* it had several names when the run came to it: some that no index knows, maybe */
#define MM_WATCHED 8192 /* somebody watches it for what is written: MM_HOME to the end of the run */
#define MM_SECONDS 16384 /* its filesystem keeps whole seconds */
#define MM_TOLD 32768    /* somebody was told the time that it has since it was last stamped */

/* rules of the scope, in this order (scope.c) */
#define MM_RULE_END 0
#define MM_RULE_IN 1        /* what lies in this folder is tracked; of several folders the longest path counts */
#define MM_RULE_OUT 2       /* it is not */
#define MM_RULE_BEGINS 3    /* nor is what begins with this */
#define MM_RULE_EXCLUDE 4   /* patterns: the last one that matches counts */
#define MM_RULE_INCLUDE 5
#define MM_RULE_ANYWHERE 8  /* flag of a pattern: it is matched with each name, not with the path below its folder */
enum { MM_OUTSIDE_SEEN = 256, MM_OUTSIDE_FOLDERS = 16 };
enum { MM_OUTSIDE_PROXY = 2, MM_OUTSIDE_SOON };      /* of a process's `outside`: it makes calls of such programs; it becomes one soon */
/* journal record types */
#define MM_TOUCH 3      /* a path, as it was before the run touched it; 1: of an area before version 13, up to `before` */
#define MM_PREIMAGE 2   /* bytes in place saved before they were destroyed */
/* kinds of records in <store>/run/ahead, the log that is true after a power cut */
#define MM_AHEAD_MAGIC 0x6461654d
#define MM_ORDER_MAGIC 0x7264726f
#define MM_AHEAD_START 1    /* the run has begun: in the first block of the log; object, dev: the store's number, and its device's; data: the boot's id */
#define MM_AHEAD_CUT 2      /* what follows was done after the instant of checkpoint `index` */
#define MM_AHEAD_BACK 3     /* a restore inside the program to `index` is done */
#define MM_AHEAD_PREIMAGE 4 /* bytes in place that are about to be destroyed */
#define MM_AHEAD_SYNCED 5   /* these blocks of a file are in the buffer, durable */
#define MM_AHEAD_HOME 6     /* all bytes of a file are in place, durable */
#define MM_AHEAD_MOVED 7    /* a file is a copy of itself from now on, on another file system */

/* memory.state */
#define MM_MEMORY_IDLE 0
#define MM_MEMORY_ASKED 1      /* somebody wants an image of process pid */
#define MM_MEMORY_AGAIN 2      /* a call was just beginning: ask once more */
#define MM_MEMORY_STOPPED 3    /* its threads are parked, the image is being written */
#define MM_MEMORY_FAILED 4     /* they run on: error and message say why */
#define MM_MEMORY_HELD 5       /* its threads are parked; nothing was looked at: others of the run may still run */
#define MM_MEMORY_GATHER 6     /* all processes are parked: make the image */
#define MM_MEMBERS 2048         /* processes, and groups of them, that can come back */
enum { MM_CLAIMS = 1024, MM_SYSV = 1024, MM_QUEUES = 256 };
#define MM_NEVER_A_PID 4194304 /* the kernel numbers no process from here on */
/* memory.written */
enum { MM_MEMORY_WRITTEN = 1, MM_MEMORY_WRITE_FAILED };
#define MM_TERM_WAITS 1
#define MM_REQUEST_SIGNAL 62   /* to `metamori run`: look at the request */

/* The image of a process's memory, asked for and made (shim_c/src/memory); of all processes at a time, under the session lock. */
struct mm_memory {
    uint32_t state;            /* futex */
    uint32_t pid, asker, durable;
    uint32_t stands;           /* futex; job control has stopped the process: nothing of it runs but what makes the image */
    uint32_t stood;            /* futex; that is done */
    uint32_t unseen;           /* its parent has not waited for the stop */
    uint64_t index, base;      /* base: the last image of this process that was committed; answered: what it counts from */
    uint32_t error, writer;    /* pid of the process that writes it */
    uint32_t writer_ready;     /* futex: its descriptors are its own */
    uint32_t writes, runs;     /* futexes: all programs run again; this one does */
    uint32_t written;          /* futex */
    uint32_t write_error, crc, threads, known_pid;
    uint64_t file_bytes, page_bytes, stop_ns, gather_ns, copy_ns, pause_ns;
    uint64_t come_from;        /* index of its image; 0: the process is one that the kernel started with its present program */
    int32_t own[80];           /* descriptors of the library itself, ended by -1 */
    char message[256];
    uint32_t childless;        /* it stands still and has no child, and gets none before it goes on */
    uint32_t same_program;     /* as its image of index base is of: how it was started is known */
    uint32_t maps_changed;     /* what it has mapped goes by other names than when it was held */
    uint64_t maps_key;         /* of what it has mapped (mm_maps_key), 0: not known */
};

/* A process that comes back, a child that ended and was not waited for, or a group that outlives its leader: the number that the
 * run's processes know, and the kernel's.  The list is made before anybody comes back, and only `real` is filled in afterwards. */
struct mm_member {
    uint32_t known;
    uint32_t real;             /* 0: not there yet */
    uint32_t placed;           /* it leads the session and the group that it is to lead */
    uint32_t comes_back;       /* the kernel's process of this number begins now, and comes back from an image */
    uint32_t tries;            /* how often it was begun anew because something was in the way, by chance */
    uint32_t stops;            /* signal that is to stop it before it runs, 0: none */
    uint32_t unseen;           /* its parent is still to be told */
    uint32_t parent;           /* by its known number; 0: none of the run */
    uint32_t may_stop, stood;  /* futexes: its parent listens; it has stopped */
    uint32_t had_turn;         /* futex: its descriptors are back, and the next one's turn has come */
};
/* An object of System V that the run uses: the number that its programs know, and the kernel's. */
enum { MM_SYSV_SHM = 3, MM_SYSV_SEM, MM_SYSV_MSG };       /* as shared_kind of memory/image_engine.h */
struct mm_sysv {
    uint32_t taken, kind;      /* kind 0: not filled in yet, or free */
    int32_t known, real;
    uint32_t undo;             /* the kernel is to undo operations on these semaphores when a process ends */
};
/* A POSIX message queue that the run opened by name: it stays when nobody has it open.  How whoever waits for a message is told
 * (mq_notify) the kernel says, but for the value. */
struct mm_queue {
    uint32_t state;            /* counts up: of four the third is there, the second being filled in */
    uint32_t waits;            /* process that gave the value, by the kernel's number; 0: none */
    uint64_t inode, value;
    char name[264];
};
struct mm_tree {
    uint32_t count;            /* of all; 0: the run's processes have the kernel's numbers */
    uint32_t processes;        /* of those that come back, the first of the list */
    uint32_t back;             /* futex: how many are back */
    uint32_t lost;             /* futex; one of them cannot come back: none does */
    uint32_t watching, opened, ready, translates;  /* watches files; futexes: so many are as far; nobody asks for the old numbers */
    uint32_t watches_kept, signals;    /* counts what was taken out of <store>/run/inotify; somebody asked that a descriptor signal */
    uint32_t terminal[9], term;        /* settings for that of whoever continues, 0s: none; MM_TERM_WAITS: a SIGTERM waits for its checkpoint */
    uint64_t claimed[MM_CLAIMS], room;     /* hashes of shared memory that some process's image has; bytes for copies of it */
    uint32_t claimer[MM_CLAIMS];           /* that process */
    char images[4096];         /* path of an image up to the process's number, */
    char suffix[64];           /* and what follows it */
    struct mm_member member[MM_MEMBERS];
    uint32_t sysv_lost;        /* there was no room for one of them */
    struct mm_sysv sysv[MM_SYSV];
    uint32_t queues_lost, queues;      /* likewise; none was noted behind this place */
    struct mm_queue queue[MM_QUEUES];
};

#define MM_MESSAGE 4096        /* bytes of a message, with the 0 at its end */
/* A call of the run's process (or of a verb) for the one who runs it: `metamori run`. */
struct mm_request {
    uint32_t lock;
    uint32_t posted, answered; /* futexes */
    int32_t what, result;
    int64_t argument;
    uint32_t pid, pad_;
    char message[MM_MESSAGE];
};
#define MM_AREA_VERSION 23
/* A rule, followed by its folder and its pattern, each ended by 0. */
struct mm_rule {
    uint16_t kind, folder, pattern;        /* kind; lengths */
    uint16_t next;                         /* bytes to the next rule: a multiple of 8 */
};

/* Files outside of the scope that the run opened for writing, by folder. */
struct mm_outside {
    uint64_t hash;             /* 0: free */
    uint64_t files;
    char folder[112];
};

struct mm_header {
    char magic[8];
    uint32_t version;
    uint32_t flags;
    uint64_t run;              /* number of the run; names the buffer file */
    uint64_t epoch;            /* 1, 2, ...: the interval that runs now */
    uint64_t parent;           /* index that the present interval grew from */
    uint64_t newest;           /* newest index of the store */
    uint64_t next_block;       /* first buffer block never handed out */
    uint64_t epoch_block;      /* blocks below it belong to earlier intervals: never overwritten */
    uint64_t journal_tail;     /* bytes of complete records */
    uint64_t cache_size;       /* bytes of AMLs kept in memory, per file */
    uint64_t keep_last, max_bytes;   /* how the run prunes itself, 0: it does not */
    uint64_t first_index;      /* the indexes from this one on are its own: no other is its to prune */
    uint64_t owed, room;       /* blocks redirected in all block tables, and set aside; held for the end (space_reserve.c) */
    uint64_t next_process;     /* store-wide process numbers */
    uint64_t next_object;      /* store-wide file numbers; under the session lock */
    uint64_t strings_tail;
    /* where the last checkpoint that was written to its end had cut: the next one starts there */
    uint64_t committed_epoch, committed_block, committed_journal;
    uint64_t supervisor_start;
    uint64_t reserved[15];     /* bytes allocated in each region's file */
    uint64_t records;          /* grows before a session writes records into the store: others look for them again */
    uint32_t lock;             /* tid of the holder */
    uint32_t freeze;           /* 0, or the pid that froze the run */
    uint32_t session_lock;     /* pid of the process whose runtime is at work */
    uint32_t supervisor;       /* pid of `metamori run`, 0 without */
    uint32_t first_pid;        /* the run's first process; it says so itself before it becomes the command */
    uint32_t next_page, free_page;
    uint32_t pif_count, free_pif;
    uint32_t fit_count, free_fit;
    uint32_t pif_generation;   /* grows when a PIF appears: readers look again; odd: one is being made */
    uint32_t virtual_count;    /* grows when a file gets a size or a time that is not in place, or has it there again: 0 lets stat pass */
    uint32_t dirty;            /* list of PIFs touched in this epoch */
    uint32_t process_high;
    uint32_t frame_count, free_frame, frames_used;
    uint64_t mount_namespace;  /* names are of this one (mm_mounts_here); 0: unknown */
    uint32_t cut_pending;      /* a cut was made whose checkpoint is not written: the dirty list is incomplete */
    uint32_t restoring;        /* a restore inside the program to this index - 1 is under way */
    uint32_t mapped;           /* list of PIFs with MM_MAPPED */
    uint64_t pid_namespace;    /* process and thread numbers of the area are this one's, */
    uint64_t boot;             /* on this machine, since this start of it; 0: unknown */
    uint32_t untracked;        /* programs that are not tracked may live: what they can see stays in place */
    uint32_t unsynced;         /* syncs of which the disk has refused what was to be written: the kernel counts it as written, the next says nothing */
    uint32_t calls_hidden;     /* no proxy can be started: programs without the library are not tracked */
    uint32_t outside_for_good; /* some of them have no process slot to ask after */
    uint64_t said[MM_SAID];    /* hashes of what a person has been told: each thing once in a run */
    uint32_t unseen;           /* grows when something may have changed any of them that nothing tells */
    uint64_t ahead_tail, ahead_synced;   /* bytes of the log of what is durable; of those that are */
    uint32_t ahead_lock, ahead_named;    /* tid of who appends to it; its name, and the buffer's, are durable */
    uint64_t order_last, order_again;    /* the last stamp; no line before this time, by CLOCK_MONOTONIC (order.c) */
    int64_t between_ticks;     /* the last time that is none of a tick of the clock, which nothing later is older than (engine/file_size.c) */
    uint32_t order_lock, note_base;      /* tid of who takes a stamp; the file that notes are names of */
    uint32_t ways_changed;     /* grows when paths lead elsewhere than before: under all of the next */
    uint32_t name_lock[MM_NAME_LOCKS], shut_ways_lock;   /* tids of who changes names, by a hash of the path; as shut_ways.c says */
    uint64_t scope;            /* offset of its rules in the strings region; 0: everything is tracked */
    uint64_t outside_files;    /* that it opened for writing out of the scope */
    uint64_t outside_seen[MM_OUTSIDE_SEEN];
    struct mm_outside outside[MM_OUTSIDE_FOLDERS];
    struct mm_tree tree;
    struct mm_request request;
    uint64_t seen[MM_SEEN][2]; /* by path: hash of (path, epoch) that was noted last; a note, others by its `previous` and `below` */
    uint32_t bucket[MM_BUCKETS];
    uint8_t mapped_files[MM_BUCKETS / 8];   /* bits by (dev, ino): files that were mapped while untracked */
#define MM_PROXY_OPEN 0x80000000            /* of proxy_places: it is ready, and not about to end */
    uint32_t proxy_places, proxy_rights[11], reaps, proxy_wanted;    /* its programs; mm_rights_here; what `metamori run` sees to */
    struct mm_words { uint32_t state; char text[MM_WORDS_BYTES]; } words[MM_WORDS];    /* what it prints */
};

struct mm_process {
    uint32_t pid;              /* 0: free */
    uint32_t calls;            /* calls on tracked files under way */
    uint64_t start_time;       /* clock ticks since boot, field 22 of /proc/PID/stat */
    uint64_t number;           /* store-wide */
    uint64_t epoch;            /* joined in this epoch */
    uint32_t fd_root;          /* page of 1024 page numbers of 1024 FIT slots each */
    uint32_t outside;          /* 1: it runs a program that is not tracked; or MM_OUTSIDE_... */
    uint32_t leaving;          /* it has come to its end: it counts no more among those that another's end waits for */
    uint32_t held;             /* page of descriptors of ours that an exec leaves open, see private_fds.c; 0: none */
    uint16_t executing;        /* it is about to become another program, which will find this slot as its own */
    uint16_t unfollowed;       /* 1: it has descriptors of files that were not tracked when it began; 2: nobody has looked */
    uint32_t aside;            /* blocks of `owed` that its calls under way have set aside (space_reserve.c) */
    uint32_t leave_lock;       /* tid of who takes away what it left: several find at once that it is dead */
    uint32_t memory;           /* page of its struct mm_memory, which stays with the slot; 0: a run without memory */
};

/* Physical File (thesis fig. 4.3) */
struct mm_pif {
    uint32_t lock;             /* tid of the holder */
    uint32_t flags;
    uint64_t dev, ino, btime_ns;
    uint64_t object;           /* the store's number for it, 0 until a checkpoint gave one */
    uint64_t epoch;            /* last epoch that touched it */
    uint64_t created;          /* epoch in which the run created it, 0: it was there before */
    uint64_t deleted;          /* epoch in which its last name went, 0: it has one */
    uint64_t fresh_from;       /* bytes in place from here on are known to no index */
    uint64_t size;             /* MM_VIRTUAL: of the file; else where it ended when its last block was redirected (mm_has_tail) */
    uint64_t home_limit;       /* with MM_VIRTUAL: bytes in place from here on read as zeros */
    uint64_t cut;              /* smallest size in this epoch */
    uint64_t cut_before;       /* the same of earlier epochs whose checkpoint was not written */
    int64_t mtime_ns;          /* of redirected writes; 0: as in place */
    uint64_t path;             /* offset in the strings region */
    uint64_t alloc_next, alloc_end;   /* buffer blocks reserved for it */
    uint64_t old_size; int64_t old_mtime_ns;  /* before the run touched it */
    uint32_t old_uid, old_gid;
    uint16_t old_mode;
    uint16_t path_capacity;
    uint8_t listed;            /* it may be on the list of mapped files */
    uint8_t reused;            /* files that had the slot before, and whose names in the store records still say */
    uint8_t taken;             /* buffer blocks handed out to it in this epoch; beyond some it does not matter how many */
    uint8_t broken_off;        /* who had the lock was killed, and more is in its table than its size says; no flag: set amid a freeze, too */
    uint32_t refs;             /* FITs that point here */
    uint32_t root;             /* block table, 0: every block is in place */
    uint32_t next_hash, next_dirty;
    uint32_t frames;           /* cache frames that it holds */
    uint16_t read_end, writes; /* where the last read ended (mm_mark_of), for sequences; writes begun and ended (read_at) */
    uint32_t saved;            /* table of pre-images saved of blocks that are overwritten in place */
    uint32_t next_mapped;
    uint32_t unseen;           /* grows when this file may have changed unseen: a new mapping, a call of the kernel's own */
    uint32_t hand;             /* frame from which on one is looked for that can leave the cache; 0: none has yet */
    uint64_t ahead_block;      /* buffer blocks below it are in the log; 0: none are */
    uint64_t ahead_size;       /* when that was written; MM_NO_LIMIT: it says that the file is longer (mm_size_in_place) */
    uint64_t redirected;       /* entries in its block table */
    uint64_t let_go;           /* epoch whose checkpoint let go of it, MM_MAPPED until then; before that is written the next one looks too */
    uint32_t names_lock;       /* tid of who takes a name or a descriptor away, or gives one: MM_KEPT and MM_NAMELESS change under it */
    uint32_t pages;            /* the block table's pages; root is this, or 0 while no block is redirected */
    uint32_t over_next;        /* the block before which the last write over old bytes ended (overwrite.c), */
    uint16_t over_blocks;      /* after a sequence of so many or more */
    uint16_t over_step;        /* blocks that are saved ahead of it at once */
};

/* File Information Table entry (thesis fig. 4.2): one per open description */
struct mm_fit {
    uint32_t refs;             /* descriptors of all processes; 0: free */
    uint32_t stream_type;      /* 0 descriptor, 1 stream */
    uint64_t stream;           /* FILE address in its process */
    uint64_t dev, ino;
    uint32_t attributes;       /* open(2) flags */
    uint32_t mode;             /* creation mode */
    char stream_attributes[16];/* fopen(3) mode */
    uint64_t created, closed;  /* epochs */
    uint32_t slot;
    uint32_t process;          /* slot of the process that opened it */
    uint32_t next_free;
    uint32_t owned;            /* position is the truth, not the kernel's */
    int64_t position;
    uint32_t lock;             /* tid of the holder: whose position it is, and the kernel's while it is that */
    char pad_[28];
};

/* A frame of the AML cache: MM_CHUNK bytes of buffer in memory (thesis 4.3.2) */
struct mm_frame {
    uint64_t chunk;            /* of the buffer */
    uint32_t used;             /* since the hand of its PIF last passed it */
    uint32_t pad_;
    uint32_t slot;              /* 0: free */
    uint32_t low, high;        /* bytes [low, high) are newer than the disk buffer's */
    uint32_t next_free;        /* of one that is free; else 1 where whole blocks gather: it leaves when it is full */
};

struct mm_touch {
    uint32_t length, type;     /* of the whole record, multiple of 8 */
    uint64_t epoch;
    uint64_t dev, ino, btime_ns, size; int64_t mtime_ns;
    uint32_t mode, uid, gid;   /* mode 0: the path did not exist */
    uint16_t path_length, target_length;   /* both follow the record, unterminated; then the extended attributes: */
    uint32_t xattrs_length;                /* each u32 length of name, u32 length of value, name, value */
    uint32_t check;            /* of all but `length`, `previous`, `below` and itself: such a note is true after a power cut */
    uint64_t stamp_ns;         /* in a job: by CLOCK_MONOTONIC_RAW, between the look and the change */
    uint64_t before;           /* epoch of the path's last note, twice, 0: a checkpoint has it; and 1: by one of them it was there */
    uint64_t previous, below[4];           /* not in names; bytes of the journal: by which others are found (names/touch.c) */
};

struct mm_preimage {
    uint32_t length, type;
    uint64_t epoch;
    uint64_t after_index;
    uint32_t slot, pad_;
    uint64_t start, end, buffer_start;     /* bytes; buffer_start 0, end as start: others have cut the file there, nothing was saved */
    uint64_t stamp_ns;                     /* as in mm_touch: between the copy and the overwrite */
};

struct mm_order {
    uint32_t magic, crc;       /* CRC-32 of what follows */
    uint64_t run, stamp_ns;    /* of a mm_preimage or mm_touch of that run */
};

struct mm_range { uint64_t block, buffer, count; };     /* blocks */
struct mm_written {
    uint64_t buffer;           /* block */
    uint32_t first, end;       /* bytes in it */
};

/* A record of the log, followed by the path, ranges and bytes, each padded to 8; the next one starts behind it, or where
 * zeros are, at the next block.  What it says of a file is what its PIF said. */
struct mm_ahead {
    uint32_t magic, length;    /* of the whole record */
    uint32_t crc, kind;        /* CRC-32 of everything from `kind` on */
    uint64_t run, epoch, index;/* index: the newest, but for CUT and BACK; START: that the run grew from */
    uint64_t dev, ino, btime_ns, object, created;
    uint64_t size, home_limit, cut; int64_t mtime_ns;
    uint64_t old_size; int64_t old_mtime_ns;
    uint32_t old_mode, old_uid, old_gid;
    uint32_t flags;            /* of the PIF; START, CUT, BACK: of the header */
    uint64_t stamp_ns, home_ctime_ns;    /* PREIMAGE: in a job, as in mm_preimage; before anything was destroyed */
    uint64_t start, end, buffer_start;   /* PREIMAGE, in bytes; MOVED: the copy's ino, btime_ns, dev */
    uint64_t length_after;     /* PREIMAGE: the file is about to be cut here; MM_NO_LIMIT: it is not */
    uint32_t path_length, ranges, data_length;
    uint32_t whole;            /* SYNCED: the ranges are all that there are, earlier ones count no more; MOVED: the PIF
                                  is the copy, too */
};

struct mm_area;
struct mm_memory *mm_memory_of(struct mm_area *area, uint32_t process);
void mm_memory_ask(struct mm_area *area, const uint32_t *processes, const uint32_t *pids, uint32_t count);
int mm_memory_held(struct mm_area *area, uint32_t process, int timeout_ms);
void mm_memory_gather(struct mm_area *area, const uint32_t *processes, uint32_t count);
int mm_memory_gathered(struct mm_area *area, uint32_t process);
void mm_memory_go(struct mm_area *area, const uint32_t *processes, uint32_t count);
void mm_memory_write(struct mm_area *area, const uint32_t *processes, uint32_t count);
long mm_fork_as(uint32_t number);
uint32_t mm_known_number(struct mm_area *area, uint32_t real);
uint32_t mm_real_number(struct mm_area *area, uint32_t known);
int32_t mm_sysv_known(struct mm_area *area, uint32_t kind, int32_t real);
int32_t mm_sysv_real(struct mm_area *area, uint32_t kind, int32_t known);
struct mm_sysv *mm_sysv_note(struct mm_area *area, uint32_t kind, int32_t real);
void mm_sysv_forget(struct mm_area *area, uint32_t kind, int32_t real);
struct mm_queue *mm_queue_note(struct mm_area *area, uint64_t inode, const char *name);
void mm_queue_forget(struct mm_area *area, uint32_t place, uint32_t state);
#define MM_NO_PLACES 1
#define MM_NO_MOVE 2
int mm_changes_possible(void);
int mm_refused_on_return(uint64_t vdso, uint64_t length);
int mm_memory_wait(struct mm_area *area, uint32_t process, int timeout_ms);
int mm_request(struct mm_area *area, int what, long argument, const char *message);
int mm_request_pending(struct mm_area *area);
void mm_request_answer(struct mm_area *area, int result);
enum { MM_CREATE = 1, MM_KEEP_FOLDER = 2 };
struct mm_area *mm_attach(const char *store, int how);
void mm_detach(struct mm_area *area);
struct mm_header *mm_head(struct mm_area *area);
struct mm_process *mm_proc(struct mm_area *area, uint32_t process);
struct mm_pif *mm_pif_at(struct mm_area *area, uint32_t slot);
struct mm_fit *mm_fit_at(struct mm_area *area, uint32_t fit);
int mm_fd_set(struct mm_area *area, uint32_t process, int fd, uint32_t fit);
long mm_fd_list(struct mm_area *area, uint32_t process, int32_t *fds, uint32_t *fits, long room);
const char *mm_path_at(struct mm_area *area, uint64_t offset);
const void *mm_record_at(struct mm_area *area, uint64_t offset);
uint32_t mm_pif_find(struct mm_area *area, uint64_t dev, uint64_t ino, uint64_t btime_ns);
uint32_t mm_pif_new(struct mm_area *area, uint64_t dev, uint64_t ino, uint64_t btime_ns, const char *path);
int mm_process_alive(struct mm_area *area, uint32_t process);
int mm_process_lives(const struct mm_process *process);
uint64_t mm_boot(void);
int mm_unborn(struct mm_area *area);
int mm_unborn_of(int header);
int mm_freeze(struct mm_area *area, int timeout_ms);
void mm_thaw(struct mm_area *area);
int mm_session_lock(struct mm_area *area, int timeout_ms);
void mm_session_unlock(struct mm_area *area);
long mm_collect(struct mm_area *area, struct mm_pif *p, uint64_t since_epoch, uint64_t block, struct mm_range *out, long room);
int mm_table_set(struct mm_area *area, struct mm_pif *p, uint64_t block, uint64_t buffer, uint64_t count);
void mm_table_clear(struct mm_area *area, struct mm_pif *p, uint64_t from_block);
uint64_t mm_table_count(struct mm_area *area, struct mm_pif *p, uint64_t from, uint64_t end);
uint64_t mm_table_get(struct mm_area *area, struct mm_pif *p, uint64_t block);
long mm_collect_saved(struct mm_area *area, struct mm_pif *p, int in_place, uint64_t since_epoch, uint64_t since_block,
                      struct mm_range *out, long room);
int mm_saved(struct mm_area *area, struct mm_pif *p, uint64_t block);
int mm_saved_set(struct mm_area *area, struct mm_pif *p, uint64_t block, uint64_t buffer, uint64_t count);
void mm_saved_free(struct mm_area *area, struct mm_pif *p);
int mm_wrote(struct mm_area *area, struct mm_pif *p, uint64_t start, uint64_t end);
struct mm_written mm_written(struct mm_area *area, struct mm_pif *p, uint64_t block, uint64_t buffer);
void mm_pif_mapped(struct mm_area *area, uint32_t slot);
uint64_t mm_blocks_take(struct mm_area *area, uint64_t count);
struct mm_frame *mm_frame_at(struct mm_area *area, uint32_t frame);
char *mm_frame_bytes(struct mm_area *area, uint32_t frame);
uint32_t mm_frame_take(struct mm_area *area, uint32_t slot, uint64_t chunk);
int mm_cache_write_back(struct mm_area *area, uint32_t slot, int buffer);
int mm_cache_evict(struct mm_area *area, uint32_t slot, int buffer);
void mm_cache_drop(struct mm_area *area, uint32_t slot);
int mm_cache_is_full(struct mm_area *area);
void mm_cache_leave(struct mm_area *area, uint32_t slot, int buffer);
int mm_set_path(struct mm_area *area, struct mm_pif *p, const char *path);
void mm_release_dead(struct mm_area *area);
uint32_t mm_process_join(struct mm_area *area, uint32_t pid, uint64_t start_time, uint32_t executing);
uint64_t mm_start_time(uint32_t pid);
int mm_words_said(struct mm_area *area, char *text);
int mm_proc_state(uint32_t pid), mm_proc_in_vfork(uint32_t pid), mm_proc_writes_image(uint32_t pid);
void mm_kept_name(struct mm_area *area, uint32_t slot, char *out, size_t room);
void mm_pif_touched(struct mm_area *area, uint32_t slot);
void mm_drop_if_done(struct mm_area *area, uint32_t slot);
void mm_pif_identify(struct mm_area *area, uint32_t slot, uint64_t dev, uint64_t ino, uint64_t btime_ns);
void mm_pif_forget(struct mm_area *area, uint32_t slot);
int mm_room(struct mm_area *area, uint64_t more);
void mm_room_give(struct mm_area *area, int redirected, int checkpoint, int least);
int mm_sound(struct mm_area *area, char *why, long room);
int mm_rules_have(const struct mm_rule *rules, const char *path);
int mm_in_scope(struct mm_area *area, const char *path);
int mm_scope_uneven(struct mm_area *area, const char *folder);
void mm_wrote_outside(struct mm_area *area, uint64_t dev, uint64_t ino, const char *path);
int mm_scope_set(struct mm_area *area, const void *rules, uint64_t length);
/* CDEF-END */
/* not 0: the area is mapped there and not where the kernel likes, so that a program that comes back finds it again */
extern uint64_t mm_area_place;

#endif
