/* loader.c - a function of the C library by its name, without asking the loader.
 *
 * dlsym has a wrapper (wrap_loader.c), so that no name and no look-up of ours leads past it: the loader's own list of objects is
 * searched behind this library.  Before any constructor, also a sanitizer's: neither function of the C library nor instrumented.
 */
#define _GNU_SOURCE
#include "base/loader.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>

int mm_same_name(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* By the hash table that linkers have made since 2006. */
static void *defined_in(const struct link_map *object, const char *name)
{
    const uint32_t *table = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    for (const ElfW(Dyn) *d = object->l_ld; d->d_tag != DT_NULL; d++) {
        /* the loader has made addresses of these, but not in the kernel's own object */
        const void *at = (const void *)(d->d_un.d_ptr < object->l_addr ? d->d_un.d_ptr + object->l_addr : d->d_un.d_ptr);
        if (d->d_tag == DT_GNU_HASH)
            table = at;
        else if (d->d_tag == DT_SYMTAB)
            symbols = at;
        else if (d->d_tag == DT_STRTAB)
            strings = at;
    }
    if (!table || !table[0] || !symbols || !strings)
        return NULL;
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chain = buckets + table[0];
    for (uint32_t i = buckets[hash % table[0]]; i; i++) {
        uint32_t of = chain[i - table[1]];
        if ((of | 1) == (hash | 1) && symbols[i].st_shndx != SHN_UNDEF && mm_same_name(strings + symbols[i].st_name, name))
            return (void *)(object->l_addr + symbols[i].st_value);
        if (of & 1)
            break;
    }
    return NULL;
}

void *mm_behind_us(const char *name)
{
    const struct link_map *object = _r_debug.r_map;
    while (object && object->l_ld != _DYNAMIC)
        object = object->l_next;
    void *found = NULL;
    while (object && !found)
        if ((object = object->l_next))
            found = defined_in(object, name);
    for (object = _r_debug.r_map; object && !found; object = object->l_next)   /* we came late: `doctor` loads us to see whether that goes */
        if (object->l_ld != _DYNAMIC)
            found = defined_in(object, name);
    return found;
}
