/* loader.h - what the dynamic loader finds behind this library. */
#ifndef MM_LOADER_H
#define MM_LOADER_H

#pragma GCC visibility push(hidden)
void *mm_behind_us(const char *name);
int mm_same_name(const char *a, const char *b);
#pragma GCC visibility pop

#endif
