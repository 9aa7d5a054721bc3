/* The driver's threads: each does the line that it is given, alone (`on`), or several do theirs at once (`together`). */
#include "driver.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#define OP(name) static void op_##name(int count, char **word)
#define WHICH (number(word[1]) % THREADS)

enum { THREADS = 8, ITEMS = 64, ANSWER = 1 << 16 };

struct worker {
    int living;
    pthread_t id;
    sem_t asked, done;
    char *line;                              /* alone: answered straight away */
    int items[ITEMS], count;                 /* together: which of the items, in this order */
};
static struct worker workers[THREADS];
static struct { char line[512]; char *answer; } items[ITEMS];
static int expected, arrived;

static void join_in(struct worker *me)
{
    __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < expected)
        sched_yield();
    for (int i = 0; i < me->count; i++) {
        answer_kept = items[me->items[i]].answer;
        obey(items[me->items[i]].line);
    }
    answer_kept = NULL;
    me->count = 0;
}

static void *working(void *which)
{
    struct worker *me = which;
    for (;;) {
        sem_wait(&me->asked);
        if (me->line)
            obey(me->line);
        else if (me->count)
            join_in(me);
        else
            return NULL;
        me->line = NULL;
        sem_post(&me->done);
    }
}

void forget_threads(void) { memset(workers, 0, sizeof workers); }

OP(thread)
{
    (void)count;
    struct worker *w = &workers[WHICH];
    memset(w, 0, sizeof *w);
    sem_init(&w->asked, 0, 0);
    sem_init(&w->done, 0, 0);
    w->living = !pthread_create(&w->id, NULL, working, w);
    reply("%d", w->living - 1);
}

OP(on) /* thread, then a line for it */
{
    struct worker *w = &workers[WHICH];
    char line[4096];
    joined(word + 2, count - 2, line, sizeof line);
    if (!w->living) {
        reply("-1 ESRCH");
        return;
    }
    w->line = line;
    sem_post(&w->asked);
    while (sem_wait(&w->done))
        ;
}

OP(together) /* thread, line, `;`, thread, line ...: each thread its own lines in order; answers in the items' order */
{
    int given = 0, from = 1;
    size_t length = 0;
    for (int i = 1; i <= count && given < ITEMS; i++) {
        if (i < count && strcmp(word[i], ";"))
            continue;
        struct worker *w = &workers[number(word[from]) % THREADS];
        joined(word + from + 1, i - from - 1, items[given].line, sizeof items[given].line);
        items[given].answer = malloc(ANSWER);
        w->items[w->count++] = given++;
        from = i + 1;
    }
    expected = arrived = 0;
    for (int i = 0; i < THREADS; i++)
        expected += workers[i].count > 0;
    int asked = 0;
    for (int i = 0; i < THREADS; i++)
        if (workers[i].count > 0)
            asked |= 1 << i, sem_post(&workers[i].asked);
    for (int i = 0; i < THREADS; i++)
        while (asked >> i & 1 && sem_wait(&workers[i].done))
            ;
    char *all = malloc(given * ANSWER);
    for (int i = 0; i < given; i++) {
        length += sprintf(all + length, "%s%s", i ? " ; " : "", items[i].answer);
        free(items[i].answer);
    }
    reply("%s", all);
    free(all);
}

static void over(struct worker *w)
{
    void *result = NULL;
    int bad = pthread_join(w->id, &result);
    w->living = 0;
    reply("%d", bad ? -1 : result == PTHREAD_CANCELED);
}

OP(endthread)
{
    (void)count;
    sem_post(&workers[WHICH].asked);
    over(&workers[WHICH]);
}

OP(cancelthread)
{
    (void)count;
    pthread_cancel(workers[WHICH].id);
    over(&workers[WHICH]);
}

const struct entry thread_operations[] = {
    {"thread", 1, op_thread}, {"on", 2, op_on}, {"together", 2, op_together}, {"endthread", 1, op_endthread},
    {"cancelthread", 1, op_cancelthread}, {0, 0, 0}};
