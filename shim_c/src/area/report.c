/* report.c - what a person must know, on the standard error of `metamori run`: a program's own may be read by another program, or
 * by nobody.  Where that has ended, or was never there, on the program's own.
 */
#include "area/area.h"

void mm_say(const char *format, ...)
{
    char text[MM_WORDS_BYTES] = "metamori: ";
    int n = (int)strlen(text);         /* one write: others say something too */
    va_list list;
    va_start(list, format);
    n += vsnprintf(text + n, sizeof text - 1 - n, format, list);
    va_end(list);
    if (n > (int)sizeof text - 2)
        n = sizeof text - 2;
    if (mm_area && mm_tell_run(mm_area, text + strlen("metamori: ")))
        return;
    text[n++] = '\n';
    sys(SYS_write, 2, text, n);
}

/* Told once in a run.  key: what it is about. */
int mm_first_time(uint64_t key)
{
    uint64_t *said = mm_area->head->said;
    key = key ? key : 1;
    for (int i = 0; i < MM_SAID; i++) {
        uint64_t free = 0;
        if (said[i] == key)
            return 0;
        if (!said[i] && __atomic_compare_exchange_n(&said[i], &free, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return 1;
        if (free == key)
            return 0;
    }
    return 0;
}
