/* real.c - the C library's own functions behind the wrappers. */
#include "libc/libc.h"
#include "base/loader.h"

#include <dlfcn.h>

#define CALL(group, type, name, parameters) type (*real_##name) parameters;
#define ALIAS(group, alias, name)
#include "libc/calls.def"
#undef CALL
#undef ALIAS

/* Written without a look first: a page that is read before it is written is mapped twice. */
void mm_resolve(void)
{
    void *(*look)(void *, const char *) = (void *(*)(void *, const char *))mm_behind_us("dlsym");
    if (!look) {
        mm_say("the C library has no table of names that is known (DT_GNU_HASH)");
        sys(SYS_exit_group, 127);
    }
#define CALL(group, type, name, parameters) real_##name = (type (*) parameters)look(RTLD_NEXT, #name);
#define ALIAS(group, alias, name)
#include "libc/calls.def"
#undef CALL
#undef ALIAS
    const char *word = look(RTLD_DEFAULT, "__libc_single_threaded");
    if (word)
        mm_single_threaded = word;
}
