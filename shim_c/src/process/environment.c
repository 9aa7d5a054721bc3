/* environment.c - the variables that lead a new program here: as they stood when this one began, and as it passes them on.
 *
 * Variables that the program took away are put back behind its own ones, and the new program's constructor hides them again,
 * so that it sees the environment that it was given (docs/adr/0009).  Runs between fork and exec too: no allocation.
 */
#include "process/process.h"

#include <link.h>

#ifdef MM_CHECKED
#define LIBRARY "libmetamori-checked.so"
#else
#define LIBRARY "libmetamori.so"
#endif
#define PREFIX "METAMORI_"
#define MARK "METAMORI_PUT_BACK="
#define SAVED 32

extern char **environ;
static const char *saved[SAVED];       /* our variables as they stood when the process began */
static int saved_count;
const char *mm_library = "";

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* One of our variables, also where the program's environment does not show it. */
const char *mm_variable(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < saved_count; i++)
        if (strncmp(saved[i], name, n) == 0 && saved[i][n] == '=')
            return saved[i] + n + 1;
    return NULL;
}

/* The variables that were put back stand behind the mark: they leave the environment again.  All freed places become
 * NULL, not only the first: who walks past the environment to the auxiliary vector finds an empty one. */
static void hide(char **mark)
{
    char *theirs = *mark + strlen(MARK);
    for (char **e = environ; *theirs && e < mark; e++)
        if (starts(*e, "LD_PRELOAD="))
            *e = theirs;
    for (char **e = mark; *e; e++)
        *e = NULL;
}

/* Once, when the process begins. */
void mm_environment_init(const char *(*keep)(const char *text))
{
    char **mark = NULL;
    for (char **e = environ; e && *e; e++) {
        if (starts(*e, MARK))
            mark = e;
        else if (starts(*e, PREFIX) && saved_count < SAVED)
            saved[saved_count++] = (char *)keep(*e);
    }
    for (struct link_map *one = _r_debug.r_map; one; one = one->l_next)    /* dladdr would look through our symbols */
        if (one->l_ld == _DYNAMIC)
            mm_library = keep(one->l_name);
    if (mark)
        hide(mark);
#ifdef MM_CHECKED
    mm_stops = mm_variable("METAMORI_STOPS");
#endif
}

static const char *preload_of(char *const envp[])
{
    for (; envp && *envp; envp++)
        if (starts(*envp, "LD_PRELOAD="))
            return *envp;
    return NULL;
}

/* Does a list of libraries name ours?  Where, and how long with its separator. */
const char *mm_ours_in(const char *list, size_t *length)
{
    for (const char *p = list ? strchr(list, '=') + 1 : ""; *p;) {
        size_t n = strcspn(p, ": ");
        size_t tail = strlen(LIBRARY);
        if (n >= tail && memcmp(p + n - tail, LIBRARY, tail) == 0) {
            *length = n + (p[n] != 0);
            return p;
        }
        p += n + (p[n] != 0);
    }
    return NULL;
}

int mm_leads_here(char *const envp[])
{
    size_t length;
    int store = !mm_variable("METAMORI_STORE");
    if (!mm_ours_in(preload_of(envp), &length))
        return 0;
    for (; envp && *envp && !store; envp++)
        store = starts(*envp, "METAMORI_STORE=");
    return store;
}

int mm_says_leave(char *const envp[])
{
    for (; envp && *envp; envp++)
        if (starts(*envp, "METAMORI_DISABLE="))
            return 1;
    return 0;
}

static LARGE struct { void *at; size_t bytes; } left;      /* by a child of vfork, in memory that is its parent's */

void mm_environment_dropped(struct mm_exec *image)
{
    if (image->made)
        sys(SYS_munmap, image->made, image->bytes);
    left.at = NULL;
}

/* In the parent, when the child has executed a program with it, or has ended. */
void mm_environment_left(void)
{
    if (left.at)
        sys(SYS_munmap, left.at, left.bytes);
    left.at = NULL;
}

static char **room_for(struct mm_exec *image, char *const envp[], char **strings)
{
    size_t n = 0, theirs = preload_of(envp) ? strlen(preload_of(envp)) : 0;
    while (envp && envp[n])
        n++;
    image->bytes = (n + SAVED + 4) * sizeof *envp + 3 * theirs + sizeof MARK + strlen(mm_library) + 64;
    long r = sys(SYS_mmap, 0, image->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r < 0 && r > -4096)
        return NULL;
    image->made = (void *)r;
    if (UNLIKELY(mm_in_vfork))
        left.at = image->made, left.bytes = image->bytes;
    *strings = (char *)r + (n + SAVED + 4) * sizeof *envp;
    return (char **)r;
}

/* Theirs, LD_PRELOAD with ours added in its place; then the mark with LD_PRELOAD as it was; then what is hidden. */
void mm_put_back(struct mm_exec *image, char *const envp[])
{
    char *text, *list, **to = room_for(image, envp, &text), **out = to;
    const char *theirs = preload_of(envp);
    if (!to)
        return;
    list = text;                       /* ours at the end: some libraries insist on being the first */
    text = stpcpy(text, theirs ? theirs : "LD_PRELOAD=");
    if (text[-1] != '=')
        *text++ = ':';
    text = stpcpy(text, mm_library);
    for (; envp && *envp; envp++)
        if (!starts(*envp, PREFIX))
            *out++ = *envp == theirs ? list : *envp;
    *out++ = ++text;
    stpcpy(stpcpy(text, MARK), theirs ? theirs : "");
    for (int i = 0; i < saved_count; i++)
        *out++ = (char *)saved[i];
    if (!theirs)
        *out++ = list;
    image->envp = to;
}

/* For a process of our own: ours alone is preloaded, and one variable more. */
void mm_environment_for(struct mm_exec *image, const char *variable)
{
    char *text, **to = room_for(image, environ, &text), **out = to;
    if (!to)
        return;
    for (char **e = environ; e && *e; e++)
        if (!starts(*e, PREFIX) && !starts(*e, "LD_PRELOAD=") && !starts(*e, "LD_AUDIT="))
            *out++ = *e;
    for (int i = 0; i < saved_count; i++)
        *out++ = (char *)saved[i];
    *out++ = strcpy(text, variable);
    text += strlen(text) + 1;
    *out++ = text;
    stpcpy(stpcpy(text, "LD_PRELOAD="), mm_library);
    image->envp = to;
}

/* Without our library, for a loader that could not bear it. */
void mm_strip(struct mm_exec *image, char *const envp[])
{
    size_t length;
    const char *theirs = preload_of(envp), *ours = mm_ours_in(theirs, &length);
    char *text, **to = ours ? room_for(image, envp, &text) : NULL, **out = to;
    if (!to)
        return;
    memcpy(text, theirs, ours - theirs);
    strcpy(text + (ours - theirs), ours + length);
    for (; *envp; envp++) {
        if (*envp != theirs)
            *out++ = *envp;
        else if (text[strlen("LD_PRELOAD=")])
            *out++ = text;
    }
    image->envp = to;
}
