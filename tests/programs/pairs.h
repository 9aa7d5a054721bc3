/* pairs.h - calls in pairs: two sides, in threads or processes, released together, over and over. See pairs.c.
 *
 * A call is a function of its side.  It says each result by said(), picks names and numbers by pick(), and calls turn()
 * between two calls of the system, where the other side may go natively.  The same function is played by the run and, step
 * by step in every order, by the oracle.
 */
#ifndef PAIRS_H
#define PAIRS_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#define RESULTS 8
#define COMMON 2

struct played {
    int count;
    long result[RESULTS];
};

struct side {
    int who;                   /* 0 or 1 */
    int world, phase;
    uint64_t dice;             /* what pick() takes from: the same in the run and in the oracle */
    uint64_t other_dice;       /* what the other side began with: names are shared more often than by chance */
    int held;                  /* a descriptor kept from earlier phases of this world, or -1 */
    int *common;               /* COMMON descriptors that both sides have had from the beginning */
    volatile uint64_t *page;   /* a mapping kept from earlier phases, or NULL */
    int stepwise;              /* the oracle plays: paths are resolved in steps of their own */
    struct played *played;
};

struct call {
    const char *name;
    void (*play)(struct side *);
};

/* The calls of a set, ended by one without a name. */
extern const struct call names_calls[];
/* Makes what stands in a world before the first phase; the current folder is the world's parent. */
void names_begin(int world);

extern const struct call data_calls[];
void data_begin(int world);
/* Opens descriptor number `which` of those in common. */
int data_common(int world, int which);
int data_child(char **word);

/* What pairs.c reads from the command line, for pairs_oracle.c. */
extern const struct set {
    const char *name;
    const struct call *calls;
    void (*begin)(int world);
    int (*common)(int world, int which);
} *set;
extern int call_count, worlds, phases, processes;
extern uint64_t seed;
extern char line[65536];
const struct call *begin_call(struct side *side, int phase, int world, struct played *played);
/* Makes a world, and opens what both sides have in common. */
void begin_world(int world, int *descriptors);
int oracle(void);
void die(const char *what);

void turn(struct side *side);
/* In the oracle: what excludes others in the kernel, until give_turns(): two who move one description's position, two who
 * write to one file. */
enum { POSITION, INODE, LOCKS };
void take_turns(struct side *side, int which, int fd);
void give_turns(struct side *side);
int set_limit(struct side *side, const struct rlimit *limit);
void said(struct side *side, long result);
uint64_t pick(struct side *side, uint64_t below);

/* -errno instead of -1 */
#define SAY(side, expression) \
    ({ long said_ = (expression); said_ = said_ < 0 ? -errno : said_; said(side, said_); said_; })

/* Where a path leads: in the run the path as it is, in the oracle its folder, looked up in a step of its own. */
struct place {
    int dir;
    char name[64];
    int error;                 /* why its folder could not be found, or 0 */
};
struct place place(struct side *side, const char *name);
void placed(struct place *place);

/* FNV-1a, gone on with from sum. */
uint32_t summed(uint32_t sum, const void *bytes, size_t n);
void state_of(int world, char *out, size_t room);
/* What the state does not show of these descriptors: where they lead, how, at which position, and which are one description. */
uint32_t descriptors_of(const int *fd, int count);
/* Removes what stands there. */
void clear_world(int world);
void write_file(const char *path, size_t size, unsigned seed);

#endif
