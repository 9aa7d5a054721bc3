/* settings.c - what a program has told the kernel of its threads, or of itself, and the kernel can say in a number.
 *
 * It comes back with the program's own memory, and is told the kernel again.
 */
#include "memory/image_engine.h"

#include <sys/prctl.h>

static const struct { int get, set; } by_prctl[MM_SETTINGS] = {
    { PR_GET_TIMERSLACK, PR_SET_TIMERSLACK }, { PR_GET_SECUREBITS, PR_SET_SECUREBITS }, { PR_GET_DUMPABLE, PR_SET_DUMPABLE },
    { 66, 65 },                            /* PR_GET_MDWE, PR_SET_MDWE: since Linux 6.3 */
};
#define NO_CHANGE 0xffffffff               /* for personality: it only says what it is */

/* This page is written only where something has changed. */
static void note(int64_t *setting, long now)
{
    if (*setting != now)
        *setting = now;
}

void mm_settings_note(void)
{
    for (int i = 0; i < MM_SETTINGS; i++)
        note(&mm_of_thread.setting[i], sys(SYS_prctl, by_prctl[i].get, 0, 0, 0, 0));
    note(&mm_of_thread.personality, sys(SYS_personality, NO_CHANGE));
}

/* As far as this user may. */
void mm_settings_back(void)
{
    for (int i = 0; i < MM_SETTINGS; i++) {
        int64_t then = mm_of_thread.setting[i];
        if (by_prctl[i].set == PR_SET_DUMPABLE && then == 2)       /* which only the kernel gives (fs.suid_dumpable) */
            then = 0;
        if (then >= 0 && sys(SYS_prctl, by_prctl[i].get, 0, 0, 0, 0) != then)
            sys(SYS_prctl, by_prctl[i].set, then, 0, 0, 0);
    }
    if (mm_of_thread.personality >= 0 && sys(SYS_personality, NO_CHANGE) != mm_of_thread.personality)
        sys(SYS_personality, mm_of_thread.personality);
}

static __attribute__((section("mm_program"))) uint64_t barriers;

/* The program's own call that registers it; the kernel says what it is registered for only since Linux 6.3. */
long mm_membarrier(long command, long flags, long processor)
{
    long r = sys(SYS_membarrier, command, flags, processor);
    if (r == 0)
        __atomic_fetch_or(&barriers, (uint64_t)command, __ATOMIC_RELAXED);
    return r;
}

void mm_barriers_back(void)
{
    for (uint64_t command = 1; command <= MM_REGISTER; command <<= 1)
        if (barriers & command)
            sys(SYS_membarrier, command, 0, 0);
}
