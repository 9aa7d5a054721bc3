/* pairs_oracle.c - plays a pair natively in every order of its steps: could any of them give what the run printed?
 *
 * What descriptors a phase leaves at which position is seen only in later phases, so all phases of a world are explained together.
 */
#define _GNU_SOURCE
#include "pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define CHOICES 64
struct order { int count; unsigned char choice[CHOICES]; };   /* where both could go on: who did */

static ucontext_t scheduler, context[2];
static struct side sides[2];
static const struct call *calls[2];
static int running, finished[2], in_oracle;
static int descriptors[2][COMMON];     /* of each process; threads have the first */
static struct { int wants, fd; int has[LOCKS]; } locks[2];
static struct rlimit limits[2];
/* What `run` printed, all of it: states by phase (0: before any) and world, results. */
static char **seen_states;
static struct played *seen;

struct place place(struct side *side, const char *name)
{
    struct place p = { AT_FDCWD, "", 0 };
    const char *slash = strchr(name, '/');
    snprintf(p.name, sizeof p.name, "w%d/%s", side->world, name);
    if (!in_oracle || !slash)
        return p;
    p.name[strlen(p.name) - strlen(slash)] = 0;
    p.dir = open(p.name, O_PATH | O_DIRECTORY);
    p.error = p.dir < 0 ? -errno : 0;
    snprintf(p.name, sizeof p.name, "%s", slash + 1);
    turn(side);
    return p;
}

void placed(struct place *p)
{
    int saved = errno;
    if (p->dir >= 0)
        close(p->dir);
    errno = saved;
}

void turn(struct side *side)
{
    if (in_oracle)
        swapcontext(&context[side->who], &scheduler);
}

static int same_thing(int which, int one, int other)
{
    struct stat a, b;
    if (which == POSITION)
        return syscall(SYS_kcmp, getpid(), getpid(), 0 /* KCMP_FILE */, one, other) == 0;
    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static int has_to_wait(int who)
{
    int which = locks[who].wants, other = which < 0 ? -1 : locks[1 - who].has[which];
    return other >= 0 && same_thing(which, locks[who].fd, other);
}

void take_turns(struct side *side, int which, int fd)
{
    if (!in_oracle)
        return;
    locks[side->who].wants = which;
    locks[side->who].fd = fd;
    while (has_to_wait(side->who))
        turn(side);
    locks[side->who].wants = -1;
    locks[side->who].has[which] = fd;
}

void give_turns(struct side *side)
{
    for (int which = 0; which < LOCKS; which++)
        locks[side->who].has[which] = -1;
}

int set_limit(struct side *side, const struct rlimit *limit)
{
    limits[processes ? side->who : 0] = *limit;
    return setrlimit(RLIMIT_FSIZE, limit);
}

static void coroutine(void)
{
    int who = running;
    calls[who]->play(&sides[who]);
    finished[who] = 1;
}

static void play_in_order(struct order *order)
{
    static char stack[2][1 << 18];
    volatile int made = 0;             /* the contexts come back here */
    for (int who = 0; who < 2; who++) {
        finished[who] = 0;
        locks[who].wants = -1;
        give_turns(&sides[who]);
        getcontext(&context[who]);
        context[who].uc_stack.ss_sp = stack[who];
        context[who].uc_stack.ss_size = sizeof stack[who];
        context[who].uc_link = &scheduler;
        makecontext(&context[who], coroutine, 0);
    }
    while (!finished[0] || !finished[1]) {
        if (finished[0] || finished[1])
            running = finished[0];
        else if (has_to_wait(0) || has_to_wait(1))
            running = has_to_wait(0);
        else {
            if (made == order->count && made < CHOICES)
                order->choice[order->count++] = 0;
            running = made < CHOICES ? order->choice[made] : 0;
            made++;
        }
        if (processes)
            setrlimit(RLIMIT_FSIZE, &limits[running]);
        swapcontext(&scheduler, &context[running]);
    }
    if (made < order->count)
        order->count = made;
}

/* The next order after one that was played; 0: that was the last. */
static int next_order(struct order *order)
{
    while (order->count && order->choice[order->count - 1])
        order->count--;
    if (!order->count)
        return 0;
    order->choice[order->count - 1] = 1;
    return 1;
}

static void play_phase(int phase, int world, struct order *order, struct played played[2])
{
    for (int who = 0; who < 2; who++)
        calls[who] = begin_call(&sides[who], phase, world, &played[who]);
    play_in_order(order);
}

static void leave_world(int world)
{
    for (int who = 0; who < 2; who++) {
        if (sides[who].held >= 0)
            close(sides[who].held);
        if (sides[who].page)
            munmap((void *)sides[who].page, 4096);
        for (int i = 0; i < COMMON; i++)
            if (descriptors[who][i] >= 0)
                close(descriptors[who][i]);
        sides[who] = (struct side){ .held = -1 };
    }
    memset(descriptors, -1, sizeof descriptors);
    clear_world(world);
}

/* The world as it was after the earlier phases. */
static void play_history(int world, struct order *history, int phase)
{
    struct played unused[2];
    leave_world(world);
    begin_world(world, descriptors[0]);
    for (int i = 0; processes && set->common && i < COMMON; i++)
        descriptors[1][i] = dup(descriptors[0][i]);
    for (int who = 0; who < 2; who++)
        sides[who] = (struct side){ .who = who, .held = -1, .stepwise = 1, .common = descriptors[processes ? who : 0] };
    for (int i = 0; i < phase; i++)
        play_phase(i, world, &history[i], unused);
}

static int same(const struct played *one, const struct played *other)
{
    return one->count == other->count && !memcmp(one->result, other->result, sizeof one->result[0] * one->count);
}

static void show(const char *what, int who, const struct played *played)
{
    printf("  %s %d:", what, who);
    for (int i = 0; i < played->count; i++)
        printf(" %ld", played->result[i]);
    putchar('\n');
}

/* What the orders give, each once. */
static void show_possible(int world, int phase, struct order *history)
{
    static char now[65536];
    static uint32_t shown[24];
    struct order order = { 0, { 0 } };
    int count = 0, i = 0;
    do {
        struct played played[2];
        play_history(world, history, phase);
        if (i == 0) {
            state_of(world, now, sizeof now);
            printf("  before:%s\n", now);
        }
        play_phase(phase, world, &order, played);
        state_of(world, now, sizeof now);
        uint32_t sum = summed(summed(summed(2166136261u, now, strlen(now)), &played[0].result, sizeof(long) * played[0].count),
                              &played[1].result, sizeof(long) * played[1].count);
        int known = 0;
        for (int j = 0; j < count; j++)
            known |= shown[j] == sum;
        if (known)
            continue;
        shown[count++] = sum;
        for (int who = 0; who < 2; who++)
            show("could be", who, &played[who]);
        printf("    and:%s\n", now);
    } while (++i < 300 && count < 24 && next_order(&order));
}

static struct played *seen_at(int world, int phase) { return &seen[((size_t)phase * worlds + world) * 2]; }
static const char *seen_state(int world, int phase) { return seen_states[(phase + 1) * worlds + world]; }

/* What an order has left that no state shows, and later phases depend on. */
static uint32_t left_behind(void)
{
    int fd[2 * (COMMON + 1)], count = 0;
    for (int who = 0; who < 2; who++) {
        fd[count++] = sides[who].held;
        for (int i = 0; set->common && i < COMMON; i++)
            fd[count++] = sides[who].common[i];
    }
    char mapped[2] = { sides[0].page != NULL, sides[1].page != NULL };
    return summed(descriptors_of(fd, count), mapped, sizeof mapped);
}

static int matches(const struct played played[2], int world, int phase)
{
    static char now[65536];
    state_of(world, now, sizeof now);
    return same(&played[0], &seen_at(world, phase)[0]) && same(&played[1], &seen_at(world, phase)[1])
        && !strcmp(now, seen_state(world, phase));
}

/* Does any order explain this phase, and one each all later ones?  Two orders that both give what was seen may leave
 * descriptors at different positions, and only a later phase shows which it was: so the search continues from each such end, once.
 * furthest: the last phase that was come to; history up to there says how. */
struct search {
    int world, furthest, plays;
    struct order *history, *explained; /* this try; the one that came furthest */
};
enum { ORDERS = 3000, PLAYS = 60000, ENDS = 64 };

static int explains(struct search *search, int phase)
{
    uint32_t tried[ENDS];
    int ends = 0, orders = 0;
    struct order order = { 0, { 0 } };
    if (phase == phases)
        return 1;
    if (phase > search->furthest) {
        search->furthest = phase;
        memcpy(search->explained, search->history, sizeof *search->history * (size_t)phase);
    }
    do {
        struct played played[2];
        play_history(search->world, search->history, phase);
        play_phase(phase, search->world, &order, played);
        if (!matches(played, search->world, phase))
            continue;
        uint32_t end = left_behind();
        int known = 0;
        for (int i = 0; i < ends; i++)
            known |= tried[i] == end;
        if (known || ends == ENDS)
            continue;
        tried[ends++] = end;
        search->history[phase] = order;
        if (explains(search, phase + 1))
            return 1;
    } while (++orders < ORDERS && ++search->plays < PLAYS && next_order(&order));
    return 0;
}

static void accuse(const struct search *search)
{
    int world = search->world, phase = search->furthest;
    struct order any = { 0, { 0 } };
    struct played unused[2];
    play_history(world, search->explained, phase);
    play_phase(phase, world, &any, unused);
    printf("no order of world %d, phase %d, gives what was seen: %s and %s\n", world, phase, calls[0]->name, calls[1]->name);
    for (int i = 0; i < phase; i++) {
        play_phase(i, world, &search->explained[i], unused);   /* for their names only */
        printf("  after %s and %s\n", calls[0]->name, calls[1]->name);
    }
    for (int who = 0; who < 2; who++)
        show("result of side", who, &seen_at(world, phase)[who]);
    printf("  state:%s\n", seen_state(world, phase));
    show_possible(world, phase, search->explained);
}

static void read_run(void)
{
    int at = -1, phase, world, who, taken;
    seen_states = calloc((size_t)(phases + 1) * worlds, sizeof *seen_states);
    seen = calloc((size_t)phases * worlds * 2, sizeof *seen);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "index ", 6))
            at++;
        else if (sscanf(line, "state %d %d%n", &who, &world, &taken) == 2 && at >= 0 && at <= phases)
            seen_states[at * worlds + world] = strdup(line + taken);
        else if (sscanf(line, "result %d %d %d%n", &phase, &world, &who, &taken) == 3) {
            struct played *p = &seen[((size_t)phase * worlds + world) * 2 + who];
            for (char *word = strtok(line + taken, " "); word && p->count < RESULTS; word = strtok(NULL, " "))
                p->result[p->count++] = atol(word);
        }
    }
}

int oracle(void)
{
    int wrong = 0, checked = 0;
    in_oracle = 1;
    read_run();
    memset(descriptors, -1, sizeof descriptors);
    for (int who = 0; who < 2; who++) {
        sides[who].held = -1;
        getrlimit(RLIMIT_FSIZE, &limits[who]);
    }
    for (int phase = 0; phase < phases; phase++)
        for (int world = 0; world < worlds; world++)
            if (!seen_state(world, phase))
                return puts("the run did not print it all"), 1;
    for (int world = 0; world < worlds; world++) {
        struct order history[phases], explained[phases];
        struct search search = { world, -1, 0, history, explained };
        int good = explains(&search, 0);
        checked += good ? phases : search.furthest + 1;
        if (!good) {
            wrong++;
            accuse(&search);
        }
        leave_world(world);
    }
    printf("%d pairs, %d wrong\n", checked, wrong);
    return wrong != 0;
}
