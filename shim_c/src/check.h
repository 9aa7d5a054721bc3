/* check.h - contracts that are checked, and stop points, in the build that the tests use (-DMM_CHECKED, METAMORI_CHECKED=1).
 *
 * MM_ASSERT states what holds at a place: which lock is held, which slot lives, which order two numbers have.  In the
 * checked build a false one names itself on standard error and ends the program; in the product it costs nothing.
 *
 * MM_STOP names a place between two instructions at which a test may hold a thread, so that another thread or process
 * goes first, every time (tests/stops.py).  In the product it is nothing.
 */
#ifndef MM_CHECK_H
#define MM_CHECK_H

#ifdef MM_CHECKED
void mm_assert_failed(const char *what, const char *file, int line) __attribute__((noreturn));
void mm_stop_here(const char *point);
#define MM_ASSERT(holds) ((holds) ? (void)0 : mm_assert_failed(#holds, __FILE__, __LINE__))
#define MM_STOP(point) mm_stop_here(point)
#else
#define MM_ASSERT(holds) ((void)sizeof(!(holds)))
#define MM_STOP(point) ((void)0)
#endif

#endif
