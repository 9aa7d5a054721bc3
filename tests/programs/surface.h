/* surface: one long random program of file calls, from a seed; what each call answers is a line on stdout.
 *
 * Natively and under Metamori the lines must be the same: results, errnos, bytes, attributes. Each call draws from its
 * own numbers (seed and line number), so that a program stays the same where some of its lines are left out.
 *   surface setup              files, folders, links from before a run, in the current folder
 *   surface run SEED LENGTH [FILE]   FILE: numbers of the lines to keep, to make a failure small
 *   surface tree               what stands in the current folder
 */
#ifndef SURFACE_H
#define SURFACE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { ROOM = 1 << 18, SLOTS = 8, STREAMS = 4 };

struct act { const char *name; int weight; void (*run)(void); };
extern const struct act data_acts[], name_acts[], attribute_acts[], stream_acts[];

extern char room[ROOM];
extern int slot[SLOTS];              /* descriptors, -1 without */
extern FILE *stream[STREAMS];
extern char *bad;                    /* memory that nobody can touch, right after a page that everybody can */

uint32_t draw(uint32_t below);       /* 0 .. below - 1 */
int chance(int percent);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void told(const char *what, long long result);                   /* the line's answer; errno's name when negative */
void told_bytes(const char *what, long long result, const char *bytes);
uint32_t crc(const char *bytes, size_t length);
const char *fill(size_t length);     /* bytes of this line, in room */
const char *path(void);              /* a name of the pool, spelled in one of many ways */
const char *plain(void);             /* the same, spelled simply */
const char *file(void);              /* one that is mostly a file */
int some(void);                      /* a descriptor, nearly always an open one */
int folder(void);                    /* a descriptor of the current folder, or AT_FDCWD */
void put(int fd);                    /* a new descriptor into a slot */
off_t place(void);
size_t length(void);
void tree(int times);
#endif
