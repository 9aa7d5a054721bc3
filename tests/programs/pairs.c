/* pairs.c - two sides, threads or processes, make calls on the same names at the same moment, thousands of times.
 *
 *   pairs run SET SIDES SEED WORLDS PHASES      plays; prints every result, and the state at every checkpoint
 *   pairs oracle SET SIDES SEED WORLDS PHASES   reads that, natively: could any order of the steps give it?
 *   pairs picture WORLDS                        the state of the current folder, as `run` prints it
 *
 * SIDES: threads, processes, or turns: threads of which the second always goes first, the order that the oracle tries last.
 *
 * A world is a folder with a few names in it.  In a phase each world sees one pair of calls, which the seed chooses.  Before
 * the first phase and after each, with nothing under way, the program takes a checkpoint and prints what all worlds look
 * like.  So one run plays many pairs between two checkpoints, and each index can be compared byte for byte.
 *
 * The oracle plays each pair natively in every order of its steps, from where the world's earlier phases ended, until one
 * order gives the same results and the same state.
 */
#define _GNU_SOURCE
#include "pairs.h"
#include "metamori.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct set sets[] = { { "names", names_calls, names_begin, NULL }, { "data", data_calls, data_begin, data_common },
             { NULL, NULL, NULL, NULL } };
const struct set *set;
int call_count, worlds, phases, processes;
uint64_t seed;
static int turns;

void die(const char *what)
{
    perror(what);
    exit(3);
}

static uint64_t mixed(uint64_t x)
{
    x = (x + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t pick(struct side *side, uint64_t below)
{
    side->dice = mixed(side->dice);
    return (side->dice >> 11) % below;
}

void said(struct side *side, long result)
{
    if (side->played->count < RESULTS)
        side->played->result[side->played->count++] = result;
}

void write_file(const char *path, size_t size, unsigned what)
{
    char bytes[16384];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(what * 31 + i * 7 + i / 256);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        die(path);
    close(fd);
}

/* -- which pair ----------------------------------------------------------------------------------------------------------- */

static uint64_t dice_of(int phase, int world, int who)
{
    return mixed(mixed(mixed(seed * 4 + 1) + (uint64_t)phase) + (uint64_t)world * 2 + (uint64_t)who);
}

const struct call *begin_call(struct side *side, int phase, int world, struct played *played)
{
    side->phase = phase, side->world = world;
    side->dice = dice_of(phase, world, side->who);
    side->other_dice = dice_of(phase, world, 1 - side->who);
    side->played = played;
    played->count = 0;
    return &set->calls[mixed(side->dice ^ 0x5bd1e995) % (uint64_t)call_count];
}

char line[65536];

static void print_states(int index)
{
    for (int world = 0; world < worlds; world++) {
        state_of(world, line, sizeof line);
        printf("state %d %d%s\n", index, world, line);
    }
}

/* -- the run --------------------------------------------------------------------------------------------------------------- */

static struct shared {
    uint32_t arrived;          /* of both sides, ever: the barrier of a pair */
    uint32_t second;           /* pairs that the second side has played */
    uint32_t phase, done;      /* the phase that may be played, from 1; sides that have played it */
    struct played played[];    /* phase, world, side */
} *shared;

static struct played *played_at(int phase, int world, int who)
{
    return &shared->played[((size_t)phase * worlds + world) * 2 + who];
}

static void together(uint32_t round)
{
    __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    for (int spins = 0; __atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < 2 * round; spins++)
        if (spins % 4096 == 4095)
            sched_yield();
}

static uint32_t chance;
static void a_little_later(uint32_t who)
{
    chance = chance * 1103515245 + 12345 + who;
    for (volatile uint32_t i = 0, n = chance >> 16 & 1 ? chance >> 20 & 4095 : 0; i < n; i++)
        ;
}

static int *common;            /* descriptors, COMMON of each world */

static void *play_side(void *which)
{
    int who = which != NULL;
    struct side *side = calloc((size_t)worlds, sizeof *side);
    for (int world = 0; world < worlds; world++)
        side[world] = (struct side){ .who = who, .held = -1, .common = common + world * COMMON };
    uint32_t round = 0;
    for (int phase = 0; phase < phases; phase++) {
        while (__atomic_load_n(&shared->phase, __ATOMIC_SEQ_CST) < (uint32_t)phase + 1)
            usleep(500);
        for (int world = 0; world < worlds; world++) {
            const struct call *call = begin_call(&side[world], phase, world, played_at(phase, world, who));
            together(++round);
            a_little_later(who);
            while (turns && who == 0 && __atomic_load_n(&shared->second, __ATOMIC_SEQ_CST) < round)
                sched_yield();
            call->play(&side[world]);
            if (who == 1)
                __atomic_store_n(&shared->second, round, __ATOMIC_SEQ_CST);
        }
        __atomic_add_fetch(&shared->done, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void take_checkpoint(void)
{
    int index = metamori_checkpoint();
    if (index < 0 && metamori_active())
        die("checkpoint");
    printf("index %d\n", index);
    print_states(index);
}

void begin_world(int world, int *descriptors)
{
    set->begin(world);
    for (int i = 0; set->common && i < COMMON; i++)
        if ((descriptors[i] = set->common(world, i)) < 0)
            die("what is in common");
}

static int run(void)
{
    size_t bytes = sizeof *shared + sizeof(struct played) * 2 * worlds * phases;
    pthread_t thread[2];
    pid_t pid[2];
    shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    common = calloc((size_t)worlds * COMMON, sizeof *common);
    for (int world = 0; world < worlds; world++)
        begin_world(world, common + world * COMMON);
    take_checkpoint();
    fflush(stdout);
    for (int who = 0; who < 2; who++) {
        if (!processes)
            pthread_create(&thread[who], NULL, play_side, who ? shared : NULL);
        else if ((pid[who] = fork()) == 0) {
            play_side(who ? shared : NULL);
            _exit(0);
        }
    }
    for (int phase = 0; phase < phases; phase++) {
        __atomic_store_n(&shared->phase, phase + 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < 2u * (phase + 1)) {
            usleep(500);
            for (int who = 0; processes && who < 2; who++)
                if (phase + 1 < phases && waitpid(pid[who], NULL, WNOHANG) != 0)
                    die("a side has ended");
        }
        take_checkpoint();
        for (int world = 0; world < worlds; world++)
            for (int who = 0; who < 2; who++) {
                const struct played *p = played_at(phase, world, who);
                printf("result %d %d %d", phase, world, who);
                for (int i = 0; i < p->count; i++)
                    printf(" %ld", p->result[i]);
                putchar('\n');
            }
    }
    for (int who = 0; who < 2; who++)
        if (processes)
            waitpid(pid[who], NULL, 0);
        else
            pthread_join(thread[who], NULL);
    return 0;
}

/* -------------------------------------------------------------------------------------------------------------------------- */

static void choose(const char *name)
{
    for (set = sets; set->name && strcmp(set->name, name); set++)
        ;
    if (!set->name)
        exit(2);
    while (set->calls[call_count].name)
        call_count++;
}

int main(int count, char **word)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    umask(022);
    if (count == 3 && !strcmp(word[1], "picture")) {
        worlds = atoi(word[2]);
        print_states(0);
        return 0;
    }
    if (count == 4 && !strcmp(word[1], "child"))
        return data_child(word + 2);
    int of_run = count == 7 && !strcmp(word[1], "run");
    if (!of_run && (count != 7 || strcmp(word[1], "oracle")))
        return 2;
    char **number = word + 4;
    choose(word[2]);
    processes = !strcmp(word[3], "processes");
    turns = !strcmp(word[3], "turns");
    seed = strtoull(number[0], NULL, 10), worlds = atoi(number[1]), phases = atoi(number[2]);
    chance = (uint32_t)seed;
    return of_run ? run() : oracle();
}
