/* The driver's crowd: threads of several processes do their lines at the same time, and one may be killed amid it.
 *
 * `together A LINE ; B LINE ; ...`: each actor its own lines in order; the answers in the items' order. An actor is a
 * thread of the process that is asked (`2`) or of any (`m.2`, `0.2`: the first process, twin 0), or such a process's
 * first thread (`m.m`, `0.m`). All are on the board, which the processes share: it knows what one that was killed
 * had done (its answer), had begun (`?`), or had not (`-`). Items of others (`x`: outside) are not ours.
 */
#include "driver.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#define OP(name) static void op_##name(int count, char **word)

enum { ITEMS = 64, ROOM = 512, NOBODY = -2 };
enum { WAITS, BEGUN, DONE };

struct item { int process, thread, state, unused; char line[ROOM], answer[ROOM]; };
struct board { int expected, arrived, given, unused; pid_t family[FAMILY]; struct item items[ITEMS]; };
static struct board own, *board = &own;
static int shared;

void share_board(int file)                  /* before the first fork; -1: nobody outside looks at it */
{
    if (shared++)
        return;
    void *map = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    if (map == MAP_FAILED)
        _exit(98);
    board = map;
    board->family[0] = getppid();
    board->family[1] = getpid();
}

void is_in_family(int twin, pid_t pid) { board->family[2 + twin] = pid; }

OP(board) /* path: of a file that is there already, whoever survives reads it */
{
    (void)count;
    int file = open(word[1], O_RDWR | O_CLOEXEC);
    if (ftruncate(file, sizeof *board) == 0)
        share_board(file);
    close(file);
    reply("0");
}

static int mine(const struct item *item, int thread)
{
    return item->process == this_process && item->thread == thread;
}

static int has_any(int thread)
{
    for (int i = 0; i < board->given; i++)
        if (mine(&board->items[i], thread))
            return 1;
    return 0;
}

void join_crowd(int thread)
{
    char line[ROOM], answer[1 << 16];
    __atomic_add_fetch(&board->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&board->arrived, __ATOMIC_SEQ_CST) < board->expected)
        sched_yield();
    for (struct item *item = board->items; item < board->items + board->given; item++) {
        if (!mine(item, thread))
            continue;
        strcpy(line, item->line);
        answer_kept = answer;
        __atomic_store_n(&item->state, BEGUN, __ATOMIC_SEQ_CST);
        obey(line);
        memcpy(item->answer, answer, strnlen(answer, ROOM - 1));
        __atomic_store_n(&item->state, DONE, __ATOMIC_SEQ_CST);
    }
    answer_kept = NULL;
}

static void take_part(void)
{
    for (int i = 0; i < THREADS; i++)
        if (has_any(i))
            wake_thread(i);
    if (has_any(FIRST_THREAD))
        join_crowd(FIRST_THREAD);
    for (int i = 0; i < THREADS; i++)
        if (has_any(i))
            await_thread(i);
}

OP(part) /* a twin is told to */
{
    (void)count, (void)word;
    take_part();
    reply("0");
}

static void read_actor(const char *name, struct item *item)
{
    const char *thread = strchr(name, '.');
    item->process = !thread ? this_process : *name == 'm' ? FIRST_PROCESS : (int)number(name);
    thread = thread ? thread + 1 : name;
    item->thread = *thread == 'm' ? FIRST_THREAD : (int)number(thread);
    if (*name == 'x')
        item->process = NOBODY;
}

static int place_items(int count, char **word)
{
    int from = 1, given = 0, actors = 0;
    for (int i = 1; i <= count && given < ITEMS; i++) {
        if (i < count && strcmp(word[i], ";"))
            continue;
        struct item *item = &board->items[given++];
        memset(item, 0, sizeof *item);
        read_actor(word[from], item);
        joined(word + from + 1, i - from - 1, item->line, ROOM);
        int again = item->process == NOBODY;
        for (struct item *other = board->items; other < item; other++)
            again |= other->process == item->process && other->thread == item->thread;
        actors += !again;
        from = i + 1;
    }
    board->arrived = 0, board->expected = actors;
    return board->given = given;
}

static int takes_part(int process)
{
    for (int i = 0; i < board->given; i++)
        if (board->items[i].process == process)
            return 1;
    return 0;
}

OP(together)
{
    static const char *const unanswered[] = {"-", "?"};
    char ignored[ROOM], *all;
    int given = place_items(count, word), asked = 0, dead = 0;
    fflush(NULL);                      /* what a stream wrote counts as written, also where another process takes the checkpoint */
    for (int n = 0; n < TWINS && this_process == FIRST_PROCESS; n++)
        if (takes_part(n) && ask_twin(n, "part\n"))
            asked |= 1 << n;
    take_part();
    for (int n = 0; n < TWINS; n++)
        if (asked >> n & 1)
            hear_twin(n, ignored, sizeof ignored);
    for (int i = 0; i < given; i++) {
        const struct item *item = &board->items[i];
        if (!strncmp(item->line, "kill ", 5))
            dead |= 1 << number(item->line + 5);
        if (!strcmp(item->line, "die"))
            dead |= 1 << item->process;
    }
    for (int n = 0; n < TWINS; n++)
        if (dead >> n & 1)
            bury_twin(n);
    size_t length = 0;
    all = malloc(given * (ROOM + 3) + 1);
    for (int i = 0; i < given; i++) {
        const struct item *item = &board->items[i];
        length += sprintf(all + length, "%s%s", i ? " ; " : "",
                          item->state == DONE ? item->answer : unanswered[item->state]);
    }
    reply("%s", all);
    free(all);
}

OP(kill) /* twin: whatever it is about */
{
    (void)count;
    reply("%d", kill(board->family[2 + number(word[1]) % TWINS], SIGKILL));
}

OP(die)
{
    (void)count, (void)word;
    kill(getpid(), SIGKILL);
}

OP(doom) /* everybody: who started the first process too */
{
    (void)count, (void)word;
    for (int i = 0; i < FAMILY; i++)
        if (board->family[i] > 1 && board->family[i] != getpid())
            kill(board->family[i], SIGKILL);
    kill(getpid(), SIGKILL);
}

OP(nap) /* microseconds */
{
    (void)count;
    usleep(number(word[1]));
    reply("0");
}

const struct entry crowd_operations[] = {
    {"together", 2, op_together}, {"part", 0, op_part}, {"board", 1, op_board}, {"kill", 1, op_kill}, {"die", 0, op_die},
    {"doom", 0, op_doom}, {"nap", 1, op_nap}, {0, 0, 0}};
