/* check.h - contracts that are checked, and stop points, in the build that the tests use (-DMM_CHECKED, METAMORI_CHECKED=1).
 *
 * MM_ASSERT states what holds at a place: which lock is held, which slot lives, which order two numbers have.  In the
 * checked build a false one names itself on standard error and ends the program; in the product it costs nothing.
 *
 * MM_ALWAYS states the same where asking costs next to nothing: in the product too.  There a false one is told once on standard
 * error, with its place, and the program goes on: it must not suffer for a contract of ours.
 *
 * MM_STOP names a place between two instructions at which a test may hold a thread, so that another thread or process
 * goes first, every time (tests/stops.py).  In the product it is nothing.
 */
#ifndef MM_CHECK_H
#define MM_CHECK_H

#ifdef __FILE_NAME__
#define MM_FILE __FILE_NAME__
#else
#define MM_FILE __FILE__
#endif
#define MM_TEXT_OF(x) #x
#define MM_TEXT(x) MM_TEXT_OF(x)

#ifdef MM_CHECKED
void mm_assert_failed(const char *what, const char *file, int line) __attribute__((noreturn));
void mm_stop_here(const char *point);
extern const char *mm_stops;            /* METAMORI_STOPS: told by environment.c */
#define MM_ASSERT(holds) ((holds) ? (void)0 : mm_assert_failed(#holds, __FILE__, __LINE__))
#define MM_ALWAYS(holds) MM_ASSERT(holds)
#define MM_STOP(point) mm_stop_here(point)
#else
#include <stdint.h>
void mm_told(const char *text) __attribute__((cold, visibility("hidden")));
#define MM_ALWAYS(holds) \
    do { \
        static uint8_t told_; \
        if (__builtin_expect(!(holds), 0) && !__atomic_exchange_n(&told_, 1, __ATOMIC_RELAXED)) \
            mm_told("metamori: please report: " MM_FILE ":" MM_TEXT(__LINE__) ": it does not hold that " #holds "\n"); \
    } while (0)
#define MM_ASSERT(holds) ((void)sizeof(!(holds)))
#define MM_STOP(point) ((void)0)
#endif

#endif
