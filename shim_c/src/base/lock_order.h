/* lock_order.h - in which order locks are taken, and (in the checked build) which of them a thread holds.
 *
 * Who holds a lock takes only such as stand below it here, of its own kind those at higher addresses: so no two threads wait
 * for each other.  The checked build aborts at the first lock that is taken against it, whoever else is about.
 * From a name's on none is held where a call begins (area/area.h), and all are taken where the program's handlers wait.
 */
#ifndef MM_LOCK_ORDER_H
#define MM_LOCK_ORDER_H

#define MM_LOCK_KINDS(KIND) \
    KIND(BEGIN) /* the start of the run */ \
    KIND(RUNTIME) /* the runtime's */ \
    KIND(REQUEST) /* the request to metamori run */ \
    KIND(SESSION) /* the session's */ \
    KIND(RENUMBER) /* renumbering */ \
    KIND(LEAVE) /* a process slot's */ \
    KIND(NAME) /* a name's */ \
    KIND(FILE_NAMES) /* a file's names_lock */ \
    KIND(TABLE) /* the table of descriptors */ \
    KIND(STREAMS) /* the streams' */ \
    KIND(FILE) /* a file's */ \
    KIND(POSITION) /* a position's */ \
    KIND(READERS) /* the readers' */ \
    KIND(AHEAD) /* the log's */ \
    KIND(ORDER) /* the order's */ \
    KIND(MAPPINGS) /* the mappings' */ \
    KIND(ACTIONS) /* the signal actions' */ \
    KIND(SHUT_WAYS) /* that of shut folders */ \
    KIND(AREA) /* the area's */ \
    KIND(LIMITS) /* the limits' */

#define MM_LOCK_KIND(kind) MM_LOCK_##kind,
enum mm_lock_kind { MM_LOCK_KINDS(MM_LOCK_KIND) };
#undef MM_LOCK_KIND

#ifdef MM_CHECKED
void mm_lock_taking(const void *lock, enum mm_lock_kind kind);
void mm_lock_taken(const void *lock, enum mm_lock_kind kind);
void mm_lock_left(const void *lock);
void mm_locks_forgotten(void);
int mm_locks_held(enum mm_lock_kind from, enum mm_lock_kind to);
#else
static inline void mm_lock_taking(const void *lock, enum mm_lock_kind kind) { (void)lock, (void)kind; }
static inline void mm_lock_taken(const void *lock, enum mm_lock_kind kind) { (void)lock, (void)kind; }
static inline void mm_lock_left(const void *lock) { (void)lock; }
static inline void mm_locks_forgotten(void) {}
int mm_locks_held(enum mm_lock_kind from, enum mm_lock_kind to);        /* for assertions only */
#endif

#endif
