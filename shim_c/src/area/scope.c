/* scope.c - which files a run tracks, decided by their paths alone.
 *
 * The rules are written once, when the run begins (metamori/runtime/area/scope.py), into the strings region, so that all its
 * processes have the same.  First come folders, longest first: the first one that a path lies in says whether it is tracked.
 * Then patterns as in a .gitignore, which may exclude what lies below that folder: names from the top down, the last
 * pattern that matches a name counts, and what lies in an excluded folder is excluded whatever it is called.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <string.h>

static const struct mm_rule *rules_of(struct mm_area *a) { return a->head->scope ? mm_region(a, STRINGS, a->head->scope) : NULL; }
static const struct mm_rule *after(const struct mm_rule *r) { return (const struct mm_rule *)((const char *)r + r->next); }
static const char *folder_of(const struct mm_rule *r) { return (const char *)(r + 1); }
static const char *pattern_of(const struct mm_rule *r) { return (const char *)(r + 1) + r->folder + 1; }

/* Where the files of the kernel are. */
static int is_kernels(const char *path)
{
    static const char *const own[] = { "/proc/", "/sys/", "/dev/", "/run/", NULL };
    for (int i = 0; own[i]; i++)
        if (strncmp(path, own[i], strlen(own[i])) == 0)
            return 1;
    return 0;
}

/* One character against [...] at *p, which is moved behind it. An unclosed bracket is a character like any other. */
static int bracket(const char **p, char c)
{
    const char *at = *p + 1;
    int not = *at == '!' || *at == '^', found = 0;
    at += not;
    for (const char *first = at; *at && (*at != ']' || at == first); at++) {
        char low = *at == '\\' && at[1] ? *++at : *at, high = low;
        if (at[1] == '-' && at[2] && at[2] != ']') {
            at += 2;
            high = *at == '\\' && at[1] ? *++at : *at;
        }
        found |= (unsigned char)c >= (unsigned char)low && (unsigned char)c <= (unsigned char)high;
    }
    if (!*at)
        return c == '[';
    *p = at;
    return found != not && c != '/';
}

/* `**` between slashes is any number of folders; `*` and `?` never match a slash. */
static int matches(const char *p, const char *text, const char *end)
{
    for (const char *begin = p; *p; p++, text++) {
        if (p[0] == '*' && p[1] == '*' && (p == begin || p[-1] == '/') && (p[2] == '/' || !p[2])) {
            if (!p[2])
                return text < end;
            for (p += 3;; text++) {
                if (matches(p, text, end))
                    return 1;
                text = memchr(text, '/', (size_t)(end - text));
                if (!text)
                    return 0;
            }
        }
        if (*p == '*') {
            while (p[1] == '*')
                p++;
            for (;; text++) {
                if (matches(p + 1, text, end))
                    return 1;
                if (text == end || *text == '/')
                    return 0;
            }
        }
        if (text == end)
            return 0;
        if (*p == '?' ? *text == '/' : *p == '[' ? !bracket(&p, *text) : *text != (*p == '\\' && p[1] ? *++p : *p))
            return 0;
    }
    return text == end;
}

/* A path up to `end` against one pattern. */
static int applies(const struct mm_rule *r, const char *path, const char *end)
{
    const char *folder = folder_of(r), *rest = path + r->folder;
    if (end <= rest || strncmp(path, folder, r->folder) != 0 || *rest != '/')
        return 0;
    if (r->kind & MM_RULE_ANYWHERE)
        for (rest = end - 1; *rest != '/'; rest--)
            ;
    return matches(pattern_of(r), rest + 1, end);
}

static __attribute__((noinline)) int is_excluded(const struct mm_rule *patterns, const char *path, size_t root)
{
    for (const char *end = path + root; *end;) {
        int excluded = 0;
        end = strchrnul(end + 1, '/');
        for (const struct mm_rule *r = patterns; r->kind; r = after(r))
            if (applies(r, path, end))
                excluded = (r->kind & ~MM_RULE_ANYWHERE) == MM_RULE_EXCLUDE;
        if (excluded)
            return 1;
    }
    return 0;
}

enum place { OUTSIDE, TRACKED, ASKED_FOR };   /* the last: not tracked, and nobody wonders why */

static enum place place_of(const struct mm_rule *r, const char *path)
{
    for (;; r = after(r)) {
        if (!r->kind || r->kind > MM_RULE_BEGINS)
            return OUTSIDE;            /* no folder has it */
        const char *text = folder_of(r);
        if ((r->folder && path[1] != text[1]) || strncmp(path, text, r->folder) != 0)
            continue;
        if (r->kind == MM_RULE_BEGINS)
            return ASKED_FOR;
        if (path[r->folder] == '/' || !path[r->folder])
            break;
    }
    if (r->kind == MM_RULE_OUT)
        return OUTSIDE;
    size_t root = r->folder;
    while (r->kind && r->kind <= MM_RULE_BEGINS)
        r = after(r);
    return __builtin_expect(!r->kind, 1) || !is_excluded(r, path, root) ? TRACKED : ASKED_FOR;
}

int mm_rules_have(const struct mm_rule *rules, const char *path) { return place_of(rules, path) == TRACKED; }

int mm_in_scope(struct mm_area *a, const char *path)
{
    const struct mm_rule *r = rules_of(a);
    return __builtin_expect(r != NULL, 1) ? mm_rules_have(r, path) : !is_kernels(path);
}

/* May some of what lies in a folder be tracked, and some not? */
int mm_scope_uneven(struct mm_area *a, const char *folder)
{
    size_t n = strlen(folder);
    for (const struct mm_rule *r = rules_of(a); r && r->kind; r = after(r))
        if (r->kind > MM_RULE_BEGINS || (strncmp(folder_of(r), folder, n) == 0 && folder_of(r)[n] == '/'))
            return 1;
    return 0;
}

/* Is it so of each folder that is tracked? */
int mm_scope_all(struct mm_area *a, int (*is_so)(const char *folder))
{
    for (const struct mm_rule *r = rules_of(a); r && r->kind; r = after(r))
        if (r->kind == MM_RULE_IN && !is_so(r->folder ? folder_of(r) : "/"))
            return 0;
    return 1;
}

/* Before the run has processes. 0 or -errno. */
int mm_scope_set(struct mm_area *a, const void *rules, uint64_t length)
{
    struct mm_header *h = a->head;
    uint64_t at = (h->strings_tail + 7) & ~7ull;
    if ((at ^ (at + length)) >> MM_SEGMENT_BITS)
        return -EINVAL;
    int e = mm_reserve(a, STRINGS, at + length);
    if (e == 0) {
        memcpy(mm_region(a, STRINGS, at), rules, length);
        h->strings_tail = at + length;
        h->scope = at;
    }
    return e;
}

/* The first three folders of a path, at most those that it has. */
static size_t top_of(const char *path)
{
    const char *end = strrchr(path, '/'), *at = path;
    for (int depth = 0; depth < 3 && at < end; depth++)
        at = strchrnul(at + 1, '/');
    return at < end ? (size_t)(at - path) : (size_t)(end - path);
}

/* A file out of the scope was opened for writing: counted once, for a person to be told. */
void mm_wrote_outside(struct mm_area *a, uint64_t dev, uint64_t ino, const char *path)
{
    struct mm_header *h = a->head;
    const struct mm_rule *rules = rules_of(a);
    uint64_t key = ((ino ^ dev << 40) * 0x9e3779b97f4a7c15ull) | 1, hash = 0xcbf29ce484222325ull;
    if (__atomic_load_n(&h->outside_seen[key >> 56], __ATOMIC_RELAXED) == key || path[0] != '/' || is_kernels(path) || !rules
        || place_of(rules, path) != OUTSIDE
        || __atomic_exchange_n(&h->outside_seen[key >> 56], key, __ATOMIC_RELAXED) == key)
        return;
    __atomic_add_fetch(&h->outside_files, 1, __ATOMIC_RELAXED);
    size_t n = top_of(path);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)path[i]) * 0x100000001b3ull;
    hash |= 1;
    for (int i = 0; i < MM_OUTSIDE_FOLDERS; i++) {
        struct mm_outside *o = &h->outside[i];
        uint64_t free = 0;
        if (__atomic_compare_exchange_n(&o->hash, &free, hash, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            memcpy(o->folder, path, n < sizeof o->folder ? n : sizeof o->folder - 1);
        else if (free != hash)
            continue;
        __atomic_add_fetch(&o->files, 1, __ATOMIC_RELAXED);
        return;
    }
}
