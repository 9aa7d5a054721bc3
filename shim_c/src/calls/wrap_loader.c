/* wrap_loader.c - functions of the C library that a program looks up in it by name: the wrappers.
 *
 * Who asks for "the next" or for "the first" of a name is known by the address that the loader's function returns to.  So ours ends
 * there by a jump, which is why nothing here is instrumented (setup.py), and may come before every constructor.
 */
#include "calls/calls.h"
#include "base/loader.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

/* Addresses only: no header declares all of them. */
#define CALL(group, type, name, parameters) extern char wrapper_##name[] __asm__(#name);
#define ALIAS(group, alias, name)
#include "libc/calls.def"
#undef CALL
#undef ALIAS

static void *wrapper_of(const char *name)
{
    void *found = NULL;
#define CALL(group, type, own, parameters) found = !found && mm_same_name(name, #own) ? wrapper_##own : found;
#define ALIAS(group, alias, own) found = !found && mm_same_name(name, #alias) ? wrapper_##own : found;
#include "libc/calls.def"
#undef CALL
#undef ALIAS
    return found;
}

/* Before our constructor; the last of them tells. */
static __attribute__((noinline)) void find_the_loader_s(void)
{
    real_dlsym = mm_behind_us("dlsym");
    real_dlvsym = mm_behind_us("dlvsym");
    real_dlopen = mm_behind_us("dlopen");
}

#define LOADER_S(name) ({ \
    if (UNLIKELY(!real_dlopen)) \
        find_the_loader_s(); \
    real_##name; })

static void *looked_up(void *handle, const char *name, const char *version)
{
    return version ? LOADER_S(dlvsym)(handle, name, version) : LOADER_S(dlsym)(handle, name);
}

/* Of another library's function, the address is in another object. */
static int is_in_c_library(const void *function)
{
    Dl_info here, libc;
    return dladdr(function, &here) && dladdr((void *)gnu_get_libc_version, &libc) && here.dli_fbase == libc.dli_fbase;
}

/* The C library's function, or the one that our own wrapper calls; another library's of that name stays what it is. */
static __attribute__((noinline)) void *in_object(void *handle, const char *name, const char *version)
{
    void *found = looked_up(handle, name, version), *wrapper = found ? wrapper_of(name) : NULL;
    if (!wrapper || is_in_c_library(found))
        return wrapper ? wrapper : found;
    void *next = looked_up(RTLD_NEXT, name, version);
    if (!next)
        dlerror();                     /* the program's own look-up was none that failed */
    return next == found ? wrapper : found;
}

EXPORT void *dlsym(void *handle, const char *name)
{
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT)
        return LOADER_S(dlsym)(handle, name);
    return in_object(handle, name, NULL);
}

EXPORT void *dlvsym(void *handle, const char *name, const char *version)
{
    if (handle == RTLD_NEXT || !version || (handle == RTLD_DEFAULT && !wrapper_of(name)))    /* the wrappers have no version */
        return LOADER_S(dlvsym)(handle, name, version);
    return in_object(handle, name, version);
}

/* A library that binds to itself before others binds to its C library, past this one. */
EXPORT void *dlopen(const char *file, int mode)
{
    int stays = mm_ready == 1 && !mm_active;
    return LOADER_S(dlopen)(file, stays ? mode : mode & ~RTLD_DEEPBIND);
}
