/* The driver: reads one operation per line on stdin, does it, and answers each with exactly one line.
 *
 * A result is a decimal number; a failure is "-1 ENAME". Bytes that were read are told by length and CRC-32, bytes
 * to write are made from a seed (make_bytes), so that a model can foretell every answer without moving the data.
 * Descriptors are the kernel's own numbers. Streams are slots that never forget a FILE pointer, closed or not:
 * after metamori_restore an old pointer must work again, and only the test knows which ones may be used.
 */
#ifndef DRIVER_H
#define DRIVER_H
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

enum { DATA_MAX = 1 << 20, WORDS_MAX = 512, SLOTS_MAX = 4096 };
enum { TWINS = 16, FAMILY = 2 + TWINS, THREADS = 8, FIRST_PROCESS = -1, FIRST_THREAD = -1 };

typedef void (*operation)(int count, char **word);
struct entry { const char *name; int words; operation run; }; /* words: how many must follow the name */

extern __thread char data[DATA_MAX]; /* known size: the fortified build checks reads against it */
extern __thread char *answer_kept;   /* where the next answer goes, or NULL: out */
extern const struct entry descriptor_operations[], name_operations[], stream_operations[], run_operations[],
    map_operations[], twin_operations[], thread_operations[], crowd_operations[];

int serve(void);                                    /* answers the lines of descriptor 0 until it ends */
void obey(char *line);                              /* one line; changes it */
void joined(char **word, int count, char *line, size_t room);
void forget_threads(void);                          /* in a child: they are the parent's */
extern int this_process;                            /* a twin's number, or FIRST_PROCESS */
int ask_twin(int n, const char *line);              /* sent; 0: nobody there */
int hear_twin(int n, char *answer, size_t room);    /* its answer; 0: it has ended */
int bury_twin(int n);                               /* waits for its end: the exit status, or minus the signal */
void share_board(int file);
void is_in_family(int twin, pid_t pid);
void join_crowd(int thread);                        /* when all are there: its part */
void wake_thread(int which);                        /* to join the crowd */
void await_thread(int which);

void reply(const char *format, ...) __attribute__((format(printf, 1, 2)));
void reply_number(long long value);                 /* the number, or -1 and the errno's name */
void reply_bytes(long long length, const char *bytes);
uint32_t crc32_of(const char *bytes, size_t length, uint32_t so_far);
void make_bytes(long seed, size_t length, char *out);
void make_text(long seed, size_t length, char *out); /* lower-case letters, a newline every 23, ends with 0 */
long long number(const char *word);
size_t size_of(const char *word);                    /* a length, never more than DATA_MAX */
int open_flags(const char *word);                    /* "rw,creat,trunc" */
#endif
